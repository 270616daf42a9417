"""The real WebUI: see ``pytest --help`` for the options --webui and so on."""

import pytest

from .helpers import Refused, WebUI


def pytest_collection_modifyitems(items):
    """Reload UI comes last: now and then the WebUI's own web server never ends, and nothing could be asked after it."""
    items.sort(key=lambda item: item.path.name == "test_reload.py")


def pytest_runtest_setup(item):
    if not item.config.getoption("--webui"):
        pytest.skip("needs a real WebUI: give its URL with --webui")


@pytest.fixture(scope="session")
def prepared(request):
    """The WebUI with the checkpoint chosen for the tests; the user's own comes back at the end."""
    webui = WebUI(request.config.getoption("--webui").rstrip("/"))
    try:
        webui.events()
    except Refused:
        pytest.fail(f"{webui.url} has no probe: link tests/webui/probe into the WebUI's extensions and restart it")
    before = webui.get("/sdapi/v1/options")["sd_model_checkpoint"]
    chosen = request.config.getoption("--webui-checkpoint")
    if chosen:
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": chosen})
    if webui.family == "sdnext" and "HeunDiscrete" not in webui.txt2img(sampler_name="Heun", enable_hr=False).infotext:
        pytest.fail("SD.Next keeps to this checkpoint's own sampler: give a checkpoint with PNDM or DDIM")
    yield webui
    if chosen:
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": before})


@pytest.fixture
def webui(prepared):
    """The WebUI. Whatever a test did to it, nothing of ours may be left on any of its models."""
    yield prepared
    assert prepared.left() == [0, 0], "hooks of the extension are left on a model, or tokens in its memory"


def _given(option):
    """A fixture with the name that an option gives; without it, a test is skipped."""

    def name(request):
        return request.config.getoption(option) or pytest.skip(f"needs a checkpoint given with {option}")

    return pytest.fixture(scope="session")(name)


other_checkpoint, sdxl_checkpoint = map(_given, ("--webui-other-checkpoint", "--webui-sdxl-checkpoint"))
