"""txt2img with a hires pass on the pocket model or a checkpoint."""

SAMPLERS = ("DDIM", "Euler", "Euler a", "Heun", "DPM++ 2M", "DPM++ 2M Karras", "DPM++ 2M SDE Karras")
