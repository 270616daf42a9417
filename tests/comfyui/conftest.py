"""The real ComfyUI: see ``pytest --help`` for the options --comfyui and so on."""

import pytest

from .helpers import ComfyUI, new_seed


def pytest_runtest_setup(item):
    if not item.config.getoption("--comfyui"):
        pytest.skip("needs a real ComfyUI: give its URL with --comfyui")


@pytest.fixture(scope="session")
def running(request):
    return ComfyUI(request.config.getoption("--comfyui"), request.config.getoption("--comfyui-checkpoint"))


@pytest.fixture
def comfyui(running):
    """ComfyUI. Whatever a test did to it, nothing of ours may be left on any loaded model."""
    yield running
    assert running.left() == [0, 0], "hooks on a model, or tensors in memory"


@pytest.fixture
def seed():
    return new_seed()


@pytest.fixture
def named(request):
    """The name given for a kind of file; the test is skipped without it."""

    def name(kind):
        return request.config.getoption(f"--comfyui-{kind}") or pytest.skip(f"needs --comfyui-{kind}")

    return name
