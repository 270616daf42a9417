"""The real WebUI: see ``pytest --help`` for the options --webui and so on."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from . import server
from .helpers import WebUI


def pytest_collection_modifyitems(items):
    """Reload UI comes last: now and then the WebUI's own web server never ends, and nothing could be asked after it."""
    items.sort(key=lambda item: item.path.name == "test_reload.py")


def pytest_runtest_setup(item):
    if not item.config.getoption("--webui"):
        pytest.skip("needs a real WebUI: give its URL or its folder with --webui")


@pytest.fixture(scope="session")
def url(request, tmp_path_factory):
    """Where the WebUI answers. Started here if a folder was given."""
    place = request.config.getoption("--webui")
    with ExitStack() as stack:
        if not place.startswith("http"):
            python, flags = (request.config.getoption(f"--webui-{name}") for name in ("python", "args"))
            log = tmp_path_factory.mktemp("webui") / "webui.log"
            others = [Path(each.partition("=")[2]) for each in request.config.getoption("--webui-extension")]
            place = stack.enter_context(server.started(Path(place).resolve(), python, flags, log, others)).url
        place = place.rstrip("/")
        if not server.answers(place):
            pytest.fail(f"{place} has no probe: link {server.PROBE} into the WebUI's extensions and restart it")
        yield place


@pytest.fixture(scope="session")
def prepared(url, request):
    """The WebUI with the checkpoint chosen for the tests; the user's own comes back at the end."""
    webui = WebUI(url)
    before = webui.get("/sdapi/v1/options")["sd_model_checkpoint"]
    chosen = request.config.getoption("--webui-checkpoint")
    if chosen:
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": chosen})
    yield webui
    if chosen:
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": before})


@pytest.fixture
def webui(prepared):
    """The WebUI. Whatever a test did to it, nothing of ours may be left on any of its models."""
    yield prepared
    hooks, changed, remembered = prepared.left()
    assert (hooks, remembered) == (0, 0), "hooks of the extension are left on a model, or tokens in its memory"
    assert changed == 0, "a step has changed the options of a model's patcher"


def _named(request, kind):
    name = request.config.getoption(f"--webui-{kind}-checkpoint")
    return name or pytest.skip(f"needs a checkpoint given with --webui-{kind}-checkpoint")


@pytest.fixture(scope="session")
def other_checkpoint(request):
    """A checkpoint of the same family with another config, so that a switch to it makes a new UNet."""
    return _named(request, "other")


@pytest.fixture(scope="session")
def sdxl_checkpoint(request):
    """A checkpoint of the SDXL layout."""
    return _named(request, "sdxl")
