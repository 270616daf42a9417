"""The training of the pocket model."""
