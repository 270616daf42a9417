"""The pictures and captions that the pocket model learns."""
