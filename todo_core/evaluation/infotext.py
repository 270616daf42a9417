"""The text that a PNG carries: what was asked for, in the words of the WebUI."""

from __future__ import annotations

from ..pocket.request import Request
from .variants import Variant

PNG_KEY = "parameters"  # the WebUI's name for it


def infotext(request: Request, variant: Variant) -> str:
    """Prompt, negative prompt, and everything needed to make the image again."""
    told = {
        "Steps": request.steps,
        "Sampler": request.sampler,
        "CFG scale": f"{request.guidance:g}",
        "Seed": request.seed,
        "Size": f"{request.width}x{request.height}",
        "Denoising strength": f"{request.denoising:g}",
        "Hires upscale": f"{request.hires_scale:g}",
        "Hires steps": request.hires_steps,
    }
    told |= {} if variant.unreduced or variant.peer else variant.settings.to_infotext()
    told |= {"Peer": variant.name} if variant.peer else {}
    lines = [request.prompt, *([f"Negative prompt: {request.negative}"] if request.negative else [])]
    return "\n".join([*lines, ", ".join(f"{name}: {value}" for name, value in told.items())])
