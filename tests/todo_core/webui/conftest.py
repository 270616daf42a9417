"""The extension's own files on a double of the WebUI."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "double"))

from tests.models import LatentDiffusion, shallow_ldm_unet  # noqa: E402
from tests.todo_core.webui.webui_double import WebUI, load_script  # noqa: E402

ONCE = ("cfg_denoiser", "before_ui", "infotext_pasted")


@pytest.fixture
def module(tmp_path):
    """scripts/todo.py, freshly loaded, with a data folder of its own."""
    from modules import script_callbacks, scripts

    for callbacks in (c for name, c in vars(script_callbacks).items() if name.startswith("callbacks_")):
        callbacks.clear()
    scripts.folder = tmp_path
    loaded = load_script()
    assert all(len(getattr(script_callbacks, f"callbacks_{name}")) == 1 for name in ONCE)
    return loaded


@pytest.fixture(autouse=True)
def opts():
    """The WebUI's options, as after its start with this extension; each test has its own."""
    from modules import shared

    shared.opts.reset()
    shared.state.begin()
    return shared.opts


@pytest.fixture
def script(module):
    return module.ToDoScript()


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(shallow_ldm_unet(), image_size=64)


@pytest.fixture
def webui(script, model):
    return WebUI(script, model)
