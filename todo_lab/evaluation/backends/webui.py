"""Images by a running WebUI over its API: what is measured is the very installation that answers.

Its clock is ours: a request's wall time, with everything the host does for an image. The hires pass is what remains
after the time of the same request without hires fix.
"""

from __future__ import annotations

import base64
import io
import json
import statistics
import time
import urllib.error
import urllib.request
from typing import Any

import numpy as np
from PIL import Image

from ...sampling.infotext import PNG_KEY
from ...sampling.request import Request
from ..running.variants import UNREDUCED, Variant
from .backend import Shot

SCRIPT = "ToDo"
UPSCALER = "Latent (bicubic antialiased)"
PATIENCE = 3600  # seconds for one answer


class Refused(RuntimeError):
    """The WebUI answered with an error, or not as this extension's API does."""


class WebUI:
    """A WebUI at ``url`` that runs with ``--api``. Raises Refused where it does not answer or lacks the extension."""

    def __init__(self, url: str, *, upscaler: str = UPSCALER) -> None:
        self.url, self.upscaler = url.rstrip("/"), upscaler
        scripts = self._ask("/sdapi/v1/scripts").get("txt2img", [])
        if SCRIPT.lower() not in map(str.lower, scripts):
            raise Refused(f"{self.url} does not have the extension {SCRIPT}")
        model = str(self._ask("/sdapi/v1/options").get("sd_model_checkpoint", "unknown"))
        self.about = {"backend": "webui", "model": model, "device": self.url, "dtype": "the WebUI's"}

    def stage(self, request: Request) -> WebUIStage:
        """Ask once for warm-up, and once without hires fix for the time of the first pass."""
        return WebUIStage(self, request)

    def generate(self, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer of txt2img and the seconds that it took."""
        started = time.perf_counter()
        answer = self._ask("/sdapi/v1/txt2img", body)
        return answer, time.perf_counter() - started

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(f"{path}: HTTP {error.code}: {error.read()[:300].decode(errors='replace')}") from error
        except (OSError, ValueError) as error:
            raise Refused(f"{self.url}{path}: {error}") from error


class WebUIStage:
    """One scene. The same seed gives the same first pass, so each image is a request of its own."""

    def __init__(self, webui: WebUI, request: Request) -> None:
        self._webui, self._request = webui, request
        webui.generate(self._body(UNREDUCED))
        self._first_seconds = statistics.median(webui.generate(self._first_only())[1] for _ in range(2))

    def shoot(self, variant: Variant) -> Shot:
        """One request. Raises Refused where the extension says that a value is not possible."""
        answer, whole = self._webui.generate(self._body(variant))
        image, infotext = _decoded(answer["images"][0])
        info = json.loads(answer["info"])
        comments = info.get("comments") or []
        told = comments if isinstance(comments, list) else [comments]
        if not variant.unreduced and SCRIPT not in info.get("extra_generation_params", {SCRIPT: ""}):
            told = [*told, "the WebUI reduced nothing"]
        hires = max(whole - self._first_seconds, 0.0)
        steps = [hires / self._request.hires_steps]
        return Shot(image, steps, self._first_seconds, hires, whole, infotext, plan="\n".join(map(str, told)))

    def pace(self) -> list[float]:
        """The same of one unreduced request."""
        return self.shoot(UNREDUCED).steps

    def warm_up(self, variant: Variant) -> None:
        """One request."""
        self.shoot(variant)

    def _body(self, variant: Variant) -> dict[str, Any]:
        """The request as the API wants it; settings by their names."""
        if variant.peer:
            raise Refused("peers cannot be evaluated through a WebUI")
        request = self._request
        told = {"enabled": False} if variant.unreduced else variant.settings.to_dict()
        return {
            "prompt": request.prompt,
            "negative_prompt": request.negative,
            "seed": request.seed,
            "width": request.width,
            "height": request.height,
            "steps": request.steps,
            "cfg_scale": request.guidance,
            "sampler_name": request.sampler,
            "enable_hr": True,
            "hr_scale": request.hires_scale,
            "hr_upscaler": self._webui.upscaler,
            "hr_second_pass_steps": request.hires_steps,
            "denoising_strength": request.denoising,
            "save_images": False,
            "alwayson_scripts": {SCRIPT: {"args": [told]}},
        }

    def _first_only(self) -> dict[str, Any]:
        return {**self._body(UNREDUCED), "enable_hr": False}


def _decoded(text: str) -> tuple[np.ndarray, str]:
    """uint8 (h, w, 3) and the infotext that the PNG carries."""
    with Image.open(io.BytesIO(base64.b64decode(text))) as image:
        return np.asarray(image.convert("RGB")), str(image.info.get(PNG_KEY, ""))
