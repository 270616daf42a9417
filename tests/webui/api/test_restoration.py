"""Nothing stays behind: after a hires pass that ended early, the WebUI works as if there had been none."""

import numpy as np
import pytest

from ..helpers import FACTOR_2, Refused, assert_reduced, reduced

BOTH_PASSES = FACTOR_2 | {"passes": "all"}
WHOLE_MODULES = {"method": "similarity", "ratio_1": 0.5, "target": "all", "mlp": True, "crossattn": True}


@pytest.fixture
def options(webui):
    """The options of the model's patcher; they are the same after the test."""
    webui.baseline()  # loads the model
    webui.txt2img()
    before = webui.options()
    yield
    assert webui.left() == [0, 0, 0]
    assert webui.options() == before
    assert_reduced(webui)


@pytest.mark.usefixtures("options")
@pytest.mark.parametrize("settings", [FACTOR_2, WHOLE_MODULES, BOTH_PASSES | {"interval": 2, "predict": "whole"}])
@pytest.mark.parametrize("event", ["cancel", "skip", "fail", "fail before"])
def test_an_end_in_the_hires_pass_leaves_nothing_behind(webui, settings, event):
    if "fail" in event:
        with pytest.raises(Refused, match="HTTP 500"):
            webui.txt2img(settings, happens={6: event})
        return
    result = webui.txt2img(settings, happens={6: event})
    assert len(result.calls) == 6
    assert len(result.pixels) == 1, "the image is there"
    assert result.hooks_left == 0
    assert min(call["hooks"] for step in result.hires for call in step["calls"]) > 0


@pytest.mark.usefixtures("options")
def test_a_fault_of_our_own_costs_nobody_the_image(webui):
    result = webui.txt2img(FACTOR_2, happens={5: "ours"})
    assert [bool(reduced([step])) for step in result.hires] == [True, False, False, False]
    assert "ToDo stopped in the hires pass: division by zero" in result.comments


def test_a_job_that_follows_a_fault_is_told_nothing(webui):
    webui.txt2img(FACTOR_2, happens={5: "ours"})
    after = webui.txt2img()
    assert not after.comments
    assert np.array_equal(after.pixels, webui.baseline().pixels)
