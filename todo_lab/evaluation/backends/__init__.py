"""Backends that make the images: a model in this process, a running WebUI, and other implementations."""
