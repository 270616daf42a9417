"""Callbacks that are registered, not inherited."""

callbacks_cfg_denoiser = []
callbacks_before_ui = []
callbacks_infotext_pasted = []
callbacks_after_process = []  # SD.Next's alone


class CFGDenoiserParams:
    def __init__(
        self, x, image_cond, sigma, sampling_step, total_sampling_steps, text_cond, text_uncond, denoiser=None
    ):
        self.x, self.image_cond, self.sigma = x, image_cond, sigma
        self.sampling_step, self.total_sampling_steps = sampling_step, total_sampling_steps
        self.text_cond, self.text_uncond, self.denoiser = text_cond, text_uncond, denoiser


def on_cfg_denoiser(callback, *, name=None):
    callbacks_cfg_denoiser.append(callback)


def on_before_ui(callback, *, name=None):
    callbacks_before_ui.append(callback)


def on_infotext_pasted(callback, *, name=None):
    callbacks_infotext_pasted.append(callback)
