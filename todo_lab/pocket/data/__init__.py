"""The training data of the pocket model: drawn pictures and their captions."""
