"""The WebUI backend against a double of the API: its requests, and its rows from the responses."""

from __future__ import annotations

import base64
import io
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from todo_core import Settings
from todo_lab.evaluation import variants
from todo_lab.evaluation.backends import webui
from todo_lab.evaluation.backends.webui import WebUI, WebUIError
from todo_lab.evaluation.metrics.image_metrics import ImageMetrics
from todo_lab.evaluation.running.measurement import measure_scene
from todo_lab.evaluation.variants import BASELINE

FIRST, HIRES = 0.02, 0.2  # seconds of the server's own clock


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        known = {
            "/sdapi/v1/scripts": {"txt2img": self.server.scripts, "img2img": []},
            "/sdapi/v1/options": {"sd_model_checkpoint": "small.safetensors"},
        }
        self.answer(known[self.path])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        settings = body["alwayson_scripts"]["ToDo"]["args"][0]
        on = settings.get("enabled", True) and body["enable_hr"]
        if settings.get("factor_1") == 7.0:
            self.answer({"detail": "out of memory"}, 500)
            return
        self.server.clock += FIRST + (HIRES / (2 if on else 1) if body["enable_hr"] else 0)
        text = f"{body['prompt']}\nSteps: {body['steps']}" + (", ToDo method: downsample" if on else "")
        info = {"infotexts": [text], "comments": ["ToDo reduced the hires pass"] if on else []}
        info["extra_generation_params"] = {"ToDo version": "0.3.0"} if on else {}
        self.answer({"images": [picture(body["seed"], 10 if on else 0, text)], "info": json.dumps(info)})

    def answer(self, content, status=200):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def picture(seed: int, offset: int, text: str) -> str:
    pixels = np.random.default_rng(seed).integers(0, 200, (128, 128, 3), dtype=np.uint8) + np.uint8(offset)
    info, file = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_text("parameters", text)
    Image.fromarray(pixels).save(file, "png", pnginfo=info)
    return base64.b64encode(file.getvalue()).decode()


@pytest.fixture
def server(monkeypatch):
    """A double of the API. Its own clock makes the measured times exact."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.scripts, server.clock = [], ["todo", "refiner"], 0.0
    monkeypatch.setattr(webui, "time", SimpleNamespace(perf_counter=lambda: server.clock))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()


def test_a_scene_is_measured_through_the_api(server, work):
    scene = [job for job in work if job.scene.number == 0 and job.variant.name in ("baseline", "ToDo 2")]
    baseline, reduced = (result.row for result in measure_scene(WebUI(server.url), scene, metrics=ImageMetrics()))
    assert baseline["error"] is reduced["error"] is None
    assert (baseline["mse"], baseline["model"]) == (0, "small.safetensors")
    assert reduced["mse"] == pytest.approx((10 / 255) ** 2)
    assert reduced["speed"] == pytest.approx(2)
    assert baseline["speed"] == pytest.approx(1)
    assert (reduced["first_seconds"], reduced["hires_seconds"]) == pytest.approx((FIRST, HIRES / 2))
    assert reduced["repeats"] is True
    assert reduced["hires_seconds"] + reduced["first_seconds"] == pytest.approx(reduced["total_seconds"])
    assert reduced["plan"] == "ToDo reduced the hires pass"
    assert reduced["peak_mib"] is None


def test_the_body_of_a_request(server, work):
    settings = Settings(factor_1=3, end=0.5)
    request = work[0].scene.request
    scene = WebUI(server.url, upscaler="Latent").prepare(request)
    generated = scene.generate(variants.from_settings(settings))
    body = server.asked[-1]
    assert body["alwayson_scripts"]["ToDo"]["args"] == [settings.to_dict()]
    sent = {"seed": request.seed, "steps": request.steps, "hr_second_pass_steps": request.hires_steps}
    sent |= {"enable_hr": True, "hr_scale": 2.0, "hr_upscaler": "Latent", "save_images": False}
    assert sent.items() <= body.items()
    assert generated.infotext.endswith("ToDo method: downsample")
    assert generated.image.shape == (128, 128, 3)
    scene.generate(BASELINE)
    assert server.asked[-1]["alwayson_scripts"]["ToDo"]["args"] == [{"enabled": False}]
    assert [asked["enable_hr"] for asked in server.asked[:3]] == [True, False, False]


def test_an_error_of_the_webui_is_the_error_of_the_row(server, work):
    others = (variants.from_settings(Settings(factor_1=7)), variants.from_peer("tomesd", {}))
    scene = [work[0], *(replace(work[0], variant=variant) for variant in others)]
    rows = [result.row for result in measure_scene(WebUI(server.url), scene, runs=1, metrics=ImageMetrics())]
    assert rows[0]["error"] is None
    assert "HTTP 500" in rows[1]["error"]
    assert "out of memory" in rows[1]["error"]
    assert "peers" in rows[2]["error"]


def test_a_url_without_a_server_or_without_the_extension_is_rejected(server):
    server.scripts = ["refiner"]
    with pytest.raises(WebUIError, match="does not have the extension"):
        WebUI(server.url)
    with pytest.raises(WebUIError, match="127"):
        WebUI("http://127.0.0.1:9")
