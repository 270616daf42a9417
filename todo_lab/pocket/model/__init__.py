"""The networks of the pocket model and its weights file."""
