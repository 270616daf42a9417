"""Metrics of images, prompts and memory."""
