"""The pocket model: a small latent diffusion model with the architecture of Stable Diffusion 1, and its training."""
