"""Nothing stays behind: after a reduced job, whatever became of it, the WebUI works as if there had been none."""

import numpy as np
import pytest

from ..helpers import Refused, reduced

FACTOR_2 = {"factor_1": 2}


@pytest.fixture
def options(webui):
    """The options of the model's patcher before the test."""
    webui.baseline()  # loads the model
    webui.txt2img()
    return webui.options()


def assert_all_is_well(webui, options):
    """Nothing is left; a baseline image is what it always was, and a reduced one is reduced."""
    assert webui.hooks() == 0
    assert webui.options() == options
    after = webui.txt2img()
    assert np.array_equal(after.pixels, webui.baseline().pixels)
    assert reduced(after.events) == set()
    assert reduced(webui.txt2img(FACTOR_2).hires) == {(1024, 256)}


def test_a_baseline_image_is_bit_identical_before_and_after_a_reduced_one(webui):
    before = webui.baseline()
    webui.txt2img(FACTOR_2)
    after = webui.txt2img()
    assert np.array_equal(after.pixels, before.pixels)
    assert [step["latent"] for step in after.events] == [step["latent"] for step in before.events]


def test_a_reduced_image_repeats_bit_for_bit(webui):
    assert np.array_equal(webui.txt2img(FACTOR_2).pixels, webui.txt2img(FACTOR_2).pixels)


@pytest.mark.parametrize(
    "settings",
    [
        FACTOR_2,
        {"factor_1": 2, "passes": "all"},
        {"method": "similarity", "ratio_1": 0.5, "target": "all", "mlp": True, "crossattn": True},
    ],
    ids=["keys/values", "both passes", "whole modules"],
)
def test_hooks_are_on_the_model_only_while_a_step_runs(webui, settings):
    result = webui.txt2img(settings)
    acting = [call["hooks"] for step in result.hires for call in step["calls"]]
    assert min(acting) > 0
    assert result.hooks_left == 0
    assert webui.hooks() == 0


@pytest.mark.parametrize("button", ["interrupt", "skip"])
@pytest.mark.parametrize(("settings", "step"), [(FACTOR_2, 6), ({"factor_1": 2, "passes": "all"}, 2)])
def test_an_interrupted_job_leaves_nothing_behind(webui, options, settings, step, button):
    result = webui.interrupted_at(step, settings, button)
    assert len(result.events) <= step + 2, "it was interrupted"
    assert len(result.pixels) == 1, "the image is there"
    assert result.hooks_left == 0
    assert_all_is_well(webui, options)


@pytest.mark.parametrize(("settings", "step"), [(FACTOR_2, 6), ({"factor_1": 2, "passes": "all"}, 2)])
def test_an_exception_inside_an_attention_leaves_nothing_behind(webui, options, settings, step):
    webui.fault("attention", step)
    with pytest.raises(Refused) as refused:
        webui.txt2img(settings)
    assert refused.value.status == 500
    assert_all_is_well(webui, options)


def test_a_fault_of_our_own_costs_nobody_the_image(webui, options):
    webui.fault("reduction", 5)
    result = webui.txt2img(FACTOR_2)
    assert [bool(reduced([step])) for step in result.hires] == [True, False, False, False]
    assert "the probe was asked to fail here" in result.comments
    assert_all_is_well(webui, options)
