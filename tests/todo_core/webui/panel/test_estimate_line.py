"""The panel's estimate line for what a page can say, with the WebUI's own rule for the size of the hires pass."""

import json
import re

import pytest

from tests.models import LatentDiffusion, ldm_unet
from tests.todo_core.patching.test_plan import course_of
from todo_core import Settings
from todo_core.course import Scale
from todo_core.patching.facts import Pass
from todo_core.reason import Reason
from todo_core.webui.panel.estimate_line import estimate_line

HIRES = {"width": 512, "height": 512, "hires": True, "scale": 2, "resize_x": 0, "resize_y": 0}


@pytest.fixture(scope="module")
def model():
    return LatentDiffusion(ldm_unet(), image_size=64)


def line(*args, **kwargs):
    return answer(*args, **kwargs).line


def answer(model, fields, *, is_img2img=False, **settings):
    return estimate_line(json.dumps(fields), Settings(**settings), model, known, is_img2img=is_img2img)


def known(page):
    """Weights that fall: 6 of 10 steps are light."""
    steps, all_weigh = range(page.steps), page.steps * (page.steps + 1) / 2
    weights, holds = tuple((page.steps - step) / all_weigh for step in steps), page.sampler != "DPM++ 2M"
    course = course_of(weights, holds=holds, scales=tuple(Scale(0.7**step, 1.0) for step in steps))
    holder = "ControlNet" if page.controlnet else None
    return Pass(page.latent, page.steps, course, holder=holder, alternates=page.alternates), None


MULTISTEP, WHOLE = {"sampler": "DPM++ 2M"}, {"predict": "whole", "interval": 2}
ALONE, AUTO = WHOLE | {"factor_1": 1}, {"predict": "whole", "interval": "auto"}
TALL, LESS = {"width": 512, "height": 768}, r"\d\d? % less work$"
UNCLEAR, LAYERS = re.escape(str(Reason.UNKNOWN)), r"layers below level 1 are predicted\)$"
NOTHING = f"{Reason.ALTERNATES}: nothing is predicted"


@pytest.mark.parametrize(
    ("fields", "settings", "told"),
    [
        # size, keys, steps and work
        ({}, {}, rf"^1024 x 1024: 4x fewer tokens in all 10 steps, {LESS}"),
        ({}, {"factor_1": 4, "factor_2": 2}, ": 16x and 4x fewer tokens in 6 of 10 steps, "),
        ({}, {"factor_1": 1, "factor_2": 2}, ": 4x fewer tokens at level 2 in 6 of 10 steps, "),
        ({}, {"method": "cluster", "ratio_1": 0.4}, ": 1.7x fewer tokens in 6 of 10 steps, "),
        ({}, {"start": 0, "end": 0.7}, ": 4x fewer tokens in 7 of 10 steps, "),
        ({}, {"start": 0, "end": 1}, ": 4x fewer tokens in all 10 steps, "),
        # the steps and the sampler of the hires pass
        ({}, {"interval": 2}, f": 4 of 10 steps partly predicted, 6 reduced, {LESS}"),
        (MULTISTEP, WHOLE, f": 3 of 10 steps predicted, 4 reduced, {LESS}"),
        (MULTISTEP | {"steps": 20, "hires_steps": 0}, ALONE, f": 8 of 20 steps predicted, {LESS}"),
        (MULTISTEP | {"steps": 20, "hires_steps": 8}, ALONE, f": 2 of 8 steps predicted, {LESS}"),
        ({"steps": 8, "hires_sampler": "DPM++ 2M"}, ALONE, f": 2 of 8 steps predicted, {LESS}"),
        # what the measured error will allow
        (MULTISTEP, AUTO | {"factor_1": 1}, r": about (\d) of 10 steps predicted, \1[0] % less work$"),
        (MULTISTEP, AUTO | {"factor_1": 1, "tolerance": 0}, ": hardly a step predicted, under 1 % less work$"),
        # why steps are not predicted as wanted
        ({}, WHOLE, rf" % less work \({UNCLEAR}: {LAYERS}"),
        (MULTISTEP | {"controlnet": True}, WHOLE, rf" % less work \(ControlNet is on: {LAYERS}"),
        (MULTISTEP | {"hires_alternates": True}, WHOLE, rf" % less work \({NOTHING}\)$"),
        (MULTISTEP | {"alternates": True}, WHOLE, LESS),  # the hires pass has a prompt of its own
        (MULTISTEP | {"hires_alternates": True}, ALONE, f"^Nothing to reduce at 1024 x 1024: {Reason.ALTERNATES}.$"),
        (MULTISTEP | {"alternates": True, "steps": 20, "denoising": 1}, WHOLE | {"factor_1": 2}, NOTHING),
        (MULTISTEP | {"steps": 4}, {"predict": "whole"}, r" 4 steps.* \(whole steps need 6 .*makes 4: nothing is"),
        # img2img has the steps of its denoising strength
        ({"steps": 20, "denoising": 0.25}, {"factor_1": 2}, " in 4 of 6 steps"),
        # the size of the hires pass
        ({"scale": 1.5}, {"factor_1": 2}, "^768 x 768:"),
        (TALL | {"resize_x": 1024}, {}, "^1024 x 1536:"),
        (TALL | {"resize_y": 1024}, {}, "^682 x 1024:"),
        ({"resize_x": 640, "resize_y": 960}, {}, "^640 x 960:"),
        # other passes
        ({}, {"passes": "all", "factor_1": 2}, "^First pass 512 x 512: 4x fewer tokens.*; Hires pass 1024 x 1024"),
        ({}, {"passes": "all"}, "^Nothing to reduce at 512 x 512: .* to 2. Hires pass 1024 x 1024: "),
        ({"hires": False, "upscale_button": True}, {"factor_1": 2}, "^Hires fix is off. With ✨ 1024 x 1024: "),
        # none
        ({"hires": False}, {}, "hires fix is off"),
        ({}, {"method": "none"}, "the method is none"),
        ({"width": 0}, {}, "once the size is known"),
        ({"scale": 1}, {}, f"^Nothing to reduce at 512 x 512: .* trained at 512 x 512; {UNCLEAR}. Set Factor, level 1"),
    ],
)
def test_it_tells_what_the_settings_would_do_with_the_fields_of_the_page(model, fields, settings, told):
    fields = HIRES | {"sampler": "Euler a"} | fields
    assert re.search(told, line(model, fields, is_img2img="denoising" in fields, **settings))


def test_both_predictions_are_told(model, monkeypatch):
    """In a larger model; tokens save more in this one."""
    assert re.search(f": 4x fewer tokens in all 20 steps, {LESS}", line(model, HIRES | MULTISTEP | {"steps": 20}))
    for bound, value in (("WORTH_PREDICTING", 0), ("WORTH_REDUCING", 1)):
        monkeypatch.setattr(f"todo_core.patching.planning.{bound}", value)
    told = rf": about \d+ of 20 steps predicted, \d partly, {LESS}"
    assert re.search(told, line(model, HIRES | MULTISTEP | {"steps": 20}))


def test_a_model_that_cannot_be_reduced_is_named():
    unet = ldm_unet(use_spatial_transformer=False, context_dim=None, channel_mult=[1, 2])
    assert "ToDo cannot reduce UNetModel: " in line(LatentDiffusion(unet), HIRES)


@pytest.mark.parametrize(
    ("fields", "settings", "expected"),
    [
        ({}, {}, False),  # SD 1.5 with a sampler that adds noise
        (MULTISTEP, {"factor_1": 2}, True),  # whole steps
        (MULTISTEP | {"steps": 4}, {}, False),
        (MULTISTEP | {"hires_alternates": True}, {"passes": "all"}, True),  # in the first pass
        ({"hires": False}, {}, True),  # nobody knows
    ],
)
def test_it_knows_whether_something_can_be_predicted(model, fields, settings, expected):
    assert answer(model, HIRES | {"sampler": "Euler a"} | fields, **settings).can_predict == expected
