"""A latent diffusion model small enough to ship, in the architecture that the extension hooks; with its training."""
