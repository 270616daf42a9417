"""What makes the images: a model in this process, a running WebUI, and other people's implementations."""
