"""What makes the images: a model in this process, as it is and with other implementations."""
