"""Shared models for the tests; each test gets them clean and has to leave them clean.

Nothing here imports torch or a model library at the top: xdist's controller reads this file too, and would import them
for nothing before its workers start.
"""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
NO_BROWSER = "needs a browser, none is installed. Give --webui-browser PATH, or run: playwright install chromium"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in every process that a test starts
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # else each page of a test tells gradio's makers, twice


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)  # small tensors: threads only wait for each other


def _torch_state():
    """What a test must leave as it was: autocast left on makes each later test up to 100 times slower on a CPU."""
    import torch

    autocast = [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
    return *autocast, torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()


@pytest.fixture(autouse=True)
def _torch_is_left_as_it_was():
    before = _torch_state()
    yield
    assert _torch_state() == before, "autocast, gradients, default dtype or threads of torch are not as before"


def _lent(*names, double=False):
    """A fixture that lends each of these small models in turn; in double precision if asked for."""

    def lend(request, monkeypatch):
        from tests import models
        from todo_core import remove_patch

        assert set(names) <= set(models.SMALL)
        if double:
            monkeypatch.setattr("ldm.modules.attention._ATTN_PRECISION", "as it comes")  # else float32
        name = getattr(request, "param", names[0])
        small = models.doubled(name) if double else models.SMALL[name]()
        yield small
        remove_patch(small.unet)
        assert models.hook_count(small.unet) == 0, "a hook outlived remove_patch"

    return pytest.fixture(params=names if len(names) > 1 else None)(lend)  # tests ask for one by name


any_model = _lent("ldm_sd1", "ldm_sd2", "ldm_sdxl", "diffusers_sd1", "diffusers_sd2", "diffusers_sdxl")
shallow, ldm_sd1, ldm_sdxl, diffusers_sd1, diffusers_sdxl = map(
    _lent, ("shallow", "ldm_sd1", "ldm_sdxl", "diffusers_sd1", "diffusers_sdxl")
)
sd1, sdxl = _lent("ldm_sd1", "diffusers_sd1"), _lent("ldm_sdxl", "diffusers_sdxl")
sd1_double, ldm_sd1_double = _lent("ldm_sd1", "diffusers_sd1", double=True), _lent("ldm_sd1", double=True)


@pytest.fixture(scope="module")
def chromium(request):
    """A headless Chromium for the tests of one file. Without any, CI fails and others skip."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as started:
        chosen, own = request.config.getoption("--webui-browser"), started.chromium.executable_path
        path = chosen or next(filter(None, map(shutil.which, (*BROWSERS, own))), None)
        if not path:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_BROWSER)
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser(chromium):
    """All pages of a file share what is read from the server once."""
    return chromium.new_context()


def pytest_addoption(parser):
    """Add the options of tests/webui and tests/comfyui."""
    group = parser.getgroup("webui", "tests on a real AUTOMATIC1111 WebUI (tests/webui)")
    link = "a WebUI with --api and with this checkout and tests/webui/probe as extensions"
    group.addoption("--webui", metavar="URL", help=link)
    group.addoption("--webui-checkpoint", metavar="NAME", help="an SD1 checkpoint (default: the current one)")
    group.addoption("--webui-other-checkpoint", metavar="NAME", help="an SD1 checkpoint with another config")
    group.addoption("--webui-sdxl-checkpoint", metavar="NAME", help="an SDXL checkpoint")
    group.addoption("--webui-sd2-checkpoints", metavar="NAME,NAME", help="SD2: one for noise, one for v-prediction")
    group.addoption("--webui-transformer-checkpoint", metavar="NAME", help="a Flux or SD3 checkpoint")
    group.addoption("--webui-browser", metavar="PATH", help="a Chromium (default: an installed one)")
    group.addoption("--webui-screenshots", metavar="DIR", help="for screenshots (default: a temporary folder)")
    group = parser.getgroup("comfyui", "tests on a real ComfyUI (tests/comfyui)")
    group.addoption("--comfyui", metavar="URL", help="a ComfyUI with this checkout and tests/comfyui/probe as nodes")
    group.addoption("--comfyui-checkpoint", metavar="NAME", help="an SD1 checkpoint (default: the first in its list)")
    group.addoption("--comfyui-sdxl-unet", metavar="NAME", help="a UNet of the SDXL layout in models/diffusion_models")
    group.addoption("--comfyui-controlnet", metavar="NAME", help="an SD1 ControlNet")
    group.addoption("--comfyui-lora", metavar="NAME", help="an SD1 LoRA")
