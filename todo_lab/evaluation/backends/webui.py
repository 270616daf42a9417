"""A backend that measures a running WebUI over its API.

The times are wall times of requests, with everything that the WebUI does for an image. The time of the hires pass is
that of a request less that of the same request without hires fix.
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

from todo_core.settings import VERSION_KEY

from ...sampling.infotext import load_png
from ...sampling.request import Request
from ..variants import BASELINE, Variant
from .backend import TimedImage

SCRIPT = "ToDo"
UPSCALER = "Latent (bicubic antialiased)"
TIMEOUT = 3600  # seconds per request


class WebUIError(RuntimeError):
    """The WebUI does not answer, answers with an error, or lacks this extension."""


class WebUI:
    """A WebUI at ``url`` that runs with ``--api``. Raises WebUIError."""

    def __init__(self, url: str, *, upscaler: str = UPSCALER) -> None:
        self.url, self.upscaler = url.rstrip("/"), upscaler
        scripts = self._ask("/sdapi/v1/scripts").get("txt2img", [])
        if SCRIPT.lower() not in map(str.lower, scripts):
            raise WebUIError(f"{self.url} does not have the extension {SCRIPT}")
        model = str(self._ask("/sdapi/v1/options").get("sd_model_checkpoint", "unknown"))
        self.about = {"backend": "webui", "model": model, "device": self.url, "dtype": "the WebUI's"}

    def prepare(self, request: Request) -> WebUIScene:
        """Warm up with one request, then time the first pass with requests without hires fix."""
        return WebUIScene(self, request)

    def generate(self, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The response of txt2img and its time in seconds."""
        started = time.perf_counter()
        answer = self._ask("/sdapi/v1/txt2img", body)
        return answer, time.perf_counter() - started

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise WebUIError(f"{path}: HTTP {error.code}: {error.read()[:300].decode(errors='replace')}") from error
        except OSError as error:
            raise WebUIError(f"{self.url} does not answer: {error}") from error
        except ValueError as error:
            raise WebUIError(f"{self.url}{path}: {error}") from error


class WebUIScene:
    """A scene. The same seed gives the same first pass, so each image is a separate request."""

    def __init__(self, webui: WebUI, request: Request) -> None:
        self._webui, self._request = webui, request
        webui.generate(self._body(BASELINE))
        first_only = {**self._body(BASELINE), "enable_hr": False}
        self._first_seconds = statistics.median(webui.generate(first_only)[1] for _ in range(2))

    def generate(self, variant: Variant) -> TimedImage:
        """Send one request. Raises WebUIError if the extension rejects a value."""
        answer, total = self._webui.generate(self._body(variant))
        image, infotext = load_png(io.BytesIO(base64.b64decode(answer["images"][0])))
        info = json.loads(answer["info"])
        comments = info.get("comments") or []
        plan = comments if isinstance(comments, list) else [comments]
        if not variant.is_baseline and VERSION_KEY not in info.get("extra_generation_params", {VERSION_KEY: ""}):
            plan = [*plan, "the WebUI reduced nothing"]
        hires = max(total - self._first_seconds, 0.0)
        steps = [hires / self._request.hires_steps] * self._request.hires_steps
        return TimedImage(image, steps, self._first_seconds, hires, total, infotext, plan="\n".join(map(str, plan)))

    def time_baseline_steps(self) -> list[float]:
        """The mean step of one baseline request."""
        return self.generate(BASELINE).step_seconds

    def warm_up(self, variant: Variant) -> None:
        """Send one request."""
        self.generate(variant)

    def _body(self, variant: Variant) -> dict[str, Any]:
        """The body of the request, with the settings by name."""
        if variant.peer:
            raise WebUIError("a WebUI cannot evaluate peers")
        request = self._request
        settings = {"enabled": False} if variant.is_baseline else variant.settings.to_dict()
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
            "alwayson_scripts": {SCRIPT: {"args": [settings]}},
        }
