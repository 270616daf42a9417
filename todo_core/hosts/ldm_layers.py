"""The UNet of CompVis, as ldm, sgm and the Forge family have it: where its layers are, and how wide its text is.

A ControlNet has the first half of these layers, and layers of its own for its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn import Module

from .host import Arguments, LogSigmas, Sampler, blocks_of, isinstance_str, weight_shape

ARGUMENTS = Arguments(latent="x", timestep="timesteps", hidden="x", context="context", mask="mask")
_SDXL_WIDTHS = (2048, 1280)  # of the text of base and refiner


def network_of(module: Any) -> str:
    """ "UNet" or "ControlNet" by what follows the middle block of ``module``; empty for anything else."""
    has_both = hasattr(module, "input_blocks") and hasattr(module, "middle_block")
    follows = {"UNet": "output_blocks", "ControlNet": "zero_convs"}
    return next((name for name, part in follows.items() if has_both and hasattr(module, part)), "")


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


def trained_side(unet: Module, *, velocity: bool, is_sdxl: bool = False, otherwise: float = 64) -> float:
    """Side of the latent that a model was trained at, from its family, the width of its text and what it predicts.

    ``otherwise`` is that of a family without a width of its own. What models tell is wrong in SD 1, SD 2 and SDXL.
    """
    block = next((block for module in unet.modules() for block in blocks_of(module)), None)
    shape = weight_shape(getattr(getattr(block, "attn2", None), "to_k", None))  # None where the weights are packed
    width = shape[1] if shape else None
    if is_sdxl or width in _SDXL_WIDTHS:
        return 128
    if width == 1024 and velocity:  # of the two SD 2 models, that of 768 pixels predicts velocity
        return 96
    return 64 if width in (768, 1024) else otherwise


def sampler_of(inner: Any) -> Sampler:
    """What a model around the UNet tells of its timesteps; those of EDM models, as CosXL, are continuous."""
    sampling = getattr(inner, "model_sampling", None) or getattr(inner, "predictor", None)
    return LogSigmas() if any(each.__name__.endswith("EDM") for each in type(sampling).__mro__) else Sampler()


def predicts_velocity(inner: Any) -> bool:
    """Whether a model around the UNet predicts v. ldm and Forge's predictor have a text, ComfyUI and others an enum.

    Stable Video Diffusion does, with EDM's noise.
    """
    in_forge = getattr(getattr(inner, "predictor", None), "prediction_type", "")
    in_others = getattr(getattr(inner, "model_type", None), "name", "")
    in_ldm = getattr(inner, "parameterization", "")
    return in_ldm == "v" or in_forge == "v_prediction" or in_others in ("V_PREDICTION", "V_PREDICTION_EDM")
