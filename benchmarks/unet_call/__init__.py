"""The parts of unet.py."""
