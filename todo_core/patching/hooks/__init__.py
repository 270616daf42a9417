"""The hooks on the model: they give attention fewer tokens, leave out a transformer, and know the running call."""
