"""Other layouts: SD2, and models without spatial self-attention."""

import numpy as np
import pytest

from ..helpers import reduced

AUTO = {"factor_1": "auto"}
ONE_STEP = {"steps": 1, "hr_second_pass_steps": 1}


def option(request, name):
    return request.config.getoption(name) or pytest.skip(f"needs {name}")


@pytest.mark.parametrize(("number", "side"), [(0, 512), (1, 768)], ids=["noise", "v-prediction"])
def test_sd2_has_the_trained_size_of_its_kind(request, webui, number, side):
    """Forge knows v-prediction only from a yaml beside the checkpoint."""
    checkpoint = option(request, "--webui-sd2-checkpoints").split(",")[number]
    chosen = {"override_settings": {"sd_model_checkpoint": checkpoint}, **ONE_STEP}
    assert webui.baseline(**chosen).pixels.std() > 5
    small = webui.txt2img(AUTO, **chosen)
    assert f"this model was trained at {side} x {side}" in small.comments
    enlarged = side * 5 // 4
    large = webui.txt2img(AUTO, hr_resize_x=enlarged, hr_resize_y=enlarged, **chosen)
    finest = (enlarged // 8) ** 2
    assert reduced(large.hires) == {(finest, finest // 4)}


def test_auto_of_sdxl_counts_from_1024_pixels(webui, sdxl_checkpoint):
    """1280 px is 1.25 times SDXL's 1024. Its level 1 lies at half the latent."""
    chosen = {"override_settings": {"sd_model_checkpoint": sdxl_checkpoint}, **ONE_STEP}
    assert webui.baseline(**chosen).pixels.std() > 5
    result = webui.txt2img({"factor_1": "auto", "factor_2": "auto"}, hr_resize_x=1280, hr_resize_y=1280, **chosen)
    assert reduced(result.hires) == {(6400, 1600)}


def test_a_transformer_is_named_and_its_image_is_the_baselines(request, webui):
    checkpoint = option(request, "--webui-transformer-checkpoint")
    chosen = {"override_settings": {"sd_model_checkpoint": checkpoint}, **ONE_STEP}
    baseline = webui.baseline(**chosen)
    result = webui.txt2img({"factor_1": 2}, **chosen)
    assert "ToDo cannot reduce" in result.comments
    assert "it is not a UNet of SD 1, SD 2 or SDXL" in result.comments
    assert np.array_equal(result.pixels, baseline.pixels)
    assert "ToDo" not in result.infotext
