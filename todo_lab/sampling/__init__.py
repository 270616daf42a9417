"""txt2img with a hires pass on the pocket model or a checkpoint."""
