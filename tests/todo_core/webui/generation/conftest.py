"""A small model in the double of the WebUI."""

import pytest

from tests.models import LatentDiffusion, shallow_ldm_unet
from tests.todo_core.webui.webui_double import WebUI


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(shallow_ldm_unet(), image_size=64)


@pytest.fixture
def webui(script, model):
    return WebUI(script, model)
