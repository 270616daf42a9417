"""The laboratory: a small trained model, a demo and an evaluation. ``todo_core`` never imports it."""
