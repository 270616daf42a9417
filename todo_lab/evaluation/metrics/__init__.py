"""What is measured: images, prompts and memory."""
