"""The text that a PNG carries: what was asked for, in the words of the WebUI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..pocket.request import Request

if TYPE_CHECKING:
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
    return written(request, told)


def written(request: Request, values: Mapping[str, Any]) -> str:
    """Prompt, negative prompt and values as the WebUI writes them, so that its PNG Info reads them."""
    pairs = ", ".join(f"{name}: {_quoted(str(value))}" for name, value in values.items())
    negative = [f"Negative prompt: {request.negative}"] if request.negative else []
    return "\n".join([request.prompt, *negative, pairs])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if any(c in text for c in ",:\n") else text
