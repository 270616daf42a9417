"""Callbacks that are registered, not inherited."""

callbacks_cfg_denoiser = []
callbacks_before_ui = []
callbacks_infotext_pasted = []
callbacks_after_process = []  # SD.Next's alone


def on_cfg_denoiser(callback, *, name=None):
    callbacks_cfg_denoiser.append(callback)


def on_before_ui(callback, *, name=None):
    callbacks_before_ui.append(callback)


def on_infotext_pasted(callback, *, name=None):
    callbacks_infotext_pasted.append(callback)
