"""The UNet of CompVis, as ldm, sgm and the Forge family have it: where its layers are, and how wide its text is.

A ControlNet has the first half of these layers, and layers of its own for its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn import Module

from .host import Arguments, LogSigmas, Sampler, isinstance_str, weight_shape

ARGUMENTS = Arguments(latent="x", timestep="timesteps", hidden="x", context="context", mask="mask")
_SDXL_WIDTHS = (2048, 1280)  # of the text of base and refiner


def is_unet(module: Any) -> bool:
    """Whether ``module`` has the three parts of such a UNet."""
    return all(hasattr(module, part) for part in ("input_blocks", "middle_block", "output_blocks"))


def is_controlnet(module: Any) -> bool:
    """Whether ``module`` has the parts of a ControlNet for such a UNet."""
    return all(hasattr(module, part) for part in ("input_blocks", "middle_block", "zero_convs"))


def in_running_order(unet: Any) -> Iterator[tuple[int, Module]]:
    """(depth, module) of all modules. A module's output has the size of the latent, halved ``depth`` times."""
    depth = 0
    parts = (getattr(unet, name, None) for name in ("input_blocks", "middle_block", "output_blocks", "out"))
    for part in parts:
        for module in part.modules() if part is not None else ():
            depth += _depth_change(module)
            yield depth, module


def _depth_change(module: Module) -> int:
    """+1 for a layer that halves the grid, -1 for one that doubles it.

    A ResBlock that resamples has two such layers, side by side. It counts once: the block cancels one of them.
    """
    inner = module._modules.get("h_upd")
    if inner is not None:
        return 0 if isinstance_str(inner, "Identity") else -_depth_change(inner)
    return isinstance_str(module, "Downsample") - isinstance_str(module, "Upsample")


def text_width(block: Any) -> int | None:
    """Width of the text that a transformer block attends to: 768 in SD1, 1024 in SD2, 2048 or 1280 in SDXL."""
    shape = weight_shape(getattr(getattr(block, "attn2", None), "to_k", None))
    return shape[1] if shape else None


def trained_side(text_width: int | None, *, velocity: bool, is_sdxl: bool = False) -> float:
    """Side of the latent that a model was trained at, from its family, the width of its text and what it predicts."""
    if is_sdxl or text_width in _SDXL_WIDTHS:
        return 128
    return 96 if text_width == 1024 and velocity else 64  # of the two SD2 models, that of 768 pixels predicts velocity


def sampler_of(inner: Any) -> Sampler:
    """What a model around the UNet tells of its timesteps; those of EDM models, as CosXL, are continuous."""
    sampling = getattr(inner, "model_sampling", None) or getattr(inner, "predictor", None)
    return LogSigmas() if any(each.__name__.endswith("EDM") for each in type(sampling).__mro__) else Sampler()


def predicts_velocity(inner: Any) -> bool:
    """Whether a model around the UNet predicts v. Forge keeps a text in a predictor; ComfyUI and the others an enum.

    Stable Video Diffusion does, with EDM's noise.
    """
    in_forge = getattr(getattr(inner, "predictor", None), "prediction_type", "")
    in_others = getattr(getattr(inner, "model_type", None), "name", "")
    return in_forge == "v_prediction" or in_others in ("V_PREDICTION", "V_PREDICTION_EDM")
