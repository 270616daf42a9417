"""PNG files with an infotext, in the format of the WebUI, so that its PNG Info tab can read it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from .request import Request

PNG_KEY = "parameters"  # the WebUI's name for the text chunk


def format_infotext(request: Request, model: str, reduction: Mapping[str, str] | None = None) -> str:
    """Prompt, negative prompt, sampling parameters, and the reduction's settings if there was one."""
    values = {
        "Steps": request.steps,
        "Sampler": request.sampler,
        "Schedule type": request.resolved.schedule,
        "CFG scale": f"{request.guidance:g}",
        "Seed": request.seed,
        "Size": f"{request.width}x{request.height}",
        "Model": model,
        "Denoising strength": f"{request.denoising:g}",
        "Hires upscale": f"{request.hires_scale:g}",
        "Hires steps": request.hires_steps,
        "Hires upscaler": "Latent (bicubic antialiased)",
        **(reduction or {}),
    }
    pairs = ", ".join(f"{name}: {_quoted(str(value))}" for name, value in values.items())
    negative = [f"Negative prompt: {request.negative}"] if request.negative else []
    return "\n".join([request.prompt, *negative, pairs])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if any(c in text for c in ",:\n") else text


def encode_png(image: np.ndarray, infotext: str) -> bytes:
    """The content of a PNG file of a uint8 image (h, w, 3)."""
    info, file = PngInfo(), io.BytesIO()
    info.add_text(PNG_KEY, infotext)
    Image.fromarray(image).save(file, "png", pnginfo=info)
    return file.getvalue()
