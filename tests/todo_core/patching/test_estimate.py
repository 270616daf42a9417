"""The estimate's multiply-adds beside those that torch counts in real UNet calls."""

from functools import partial

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch.utils.flop_counter import FlopCounterMode

from tests import models
from tests.todo_core.patching.test_plan import course_of
from todo_core import Settings, TokenGrid, patched
from todo_core.course import Course
from todo_core.hosts import detect
from todo_core.patching.estimate import Estimate
from todo_core.patching.facts import Pass
from todo_core.patching.planning import make_plan
from todo_core.patching.work import Layout
from todo_core.settings import BUILT_IN

TEXT = 77


def counted(small, size, settings):
    """Multiply-adds of a UNet call of one row, as torch counts them: not those of its fused attention for the CPU."""
    small, latent, text = small.copy(), models.noise(1, 4, *size), models.noise(1, TEXT, models.TEXT_WIDTH)
    if hasattr(small.unet, "attn_processors"):
        small.unet.set_default_attn_processor()
    with patched(small.unet, settings), FlopCounterMode(display=False) as counter:
        small(latent, text=text)
    return counter.get_total_flops() / 2


def estimated(small, size, settings, steps=10):
    host = detect(small.unet)
    facts = Pass(TokenGrid(*size), steps, course_of((0.5,) * steps))
    return Estimate.of(host, make_plan(settings, host, facts))


def left(estimate, host):
    """Multiply-adds of the pass's mean step."""
    return (1 - estimate.saved) * Layout.of(host).work(estimate.plan.facts.size, ())


ALWAYS = {"start": 0, "end": 1, "interval": 1}
CASES = {
    "baseline": Settings(method="none"),
    "ToDo 2": Settings(factor_1=2, **ALWAYS),
    "ToDo 4 and 2": Settings(factor_1=4, factor_2=2, **ALWAYS),
    "ToMe": Settings(method="similarity", ratio_1=0.5, target="all", **ALWAYS),
    "ToMe everywhere": Settings(
        method="similarity", ratio_1=0.25, ratio_2=0.5, target="all", attn=True, crossattn=True, mlp=True, **ALWAYS
    ),
    "only the feed-forward": Settings(method="cluster", ratio_1=0.5, target="all", attn=False, mlp=True, **ALWAYS),
    "cluster": Settings(method="cluster", ratio_1=0.3, ratio_2=0.7, **ALWAYS),
}


@pytest.mark.parametrize(
    ("any_model", "name"),
    [("ldm_sd1", name) for name in CASES]
    + [(model, "ToMe everywhere") for model in models.SMALL if model not in ("shallow", "ldm_sd1")],
    indirect=["any_model"],
)
def test_multiply_adds_are_those_that_torch_counts(any_model, name):
    settings = CASES[name]
    ours, theirs = estimated(any_model, (16, 24), settings), counted(any_model, (16, 24), settings)
    assert left(ours, detect(any_model.unet)) == pytest.approx(
        theirs, rel=0.015
    )  # for its search, a CPU fills up the last block of destinations


def test_the_window_weighs_the_steps_and_past_its_end_the_other_method_counts(ldm_sd1):
    def reduced(**values):
        return left(estimated(ldm_sd1, (32, 32), Settings(**(ALWAYS | values))), detect(ldm_sd1.unet))

    plain, always, then = reduced(method="none"), reduced(factor_1=2), reduced(method="cluster", ratio_1=0.5)
    assert reduced(factor_1=2, start=0.25, end=0.75) == pytest.approx((plain + always) / 2)
    both = reduced(factor_1=2, end=0.6, afterwards="cluster", ratio_1=0.5)
    assert both == pytest.approx(0.6 * always + 0.4 * then)


@pytest.mark.parametrize("any_model", ["ldm_sd1", "diffusers_sdxl"], indirect=True)
def test_predicted_transformers_count_as_what_torch_sees_when_they_do_not_run(any_model):
    small, size = any_model, (16, 24)
    host = detect(small.unet)
    layout, plan = Layout.of(host), make_plan(Settings(interval=2, start=0), host, Pass(TokenGrid(*size), 10))
    work, estimate = partial(layout.work, TokenGrid(*size)), Estimate.of(host, plan)
    small = small.copy()
    for transformer in detect(small.unet).deep_transformers:
        one_tuple = isinstance(small.unet, UNet2DConditionModel)
        transformer.forward = lambda x, *_, one_tuple=one_tuple, **__: (x,) if one_tuple else x
    theirs = counted(small, size, Settings(method="none"))
    assert work((), predicts=True) == pytest.approx(theirs, rel=0.01)
    whole, part = (work(plan.levels, predicts=each) for each in (False, True))
    # of ten steps the first two, the last, and every second of the others run
    assert left(estimate, host) == pytest.approx(0.6 * whole + 0.4 * part)


def test_layers_are_predicted_in_the_steps_in_which_the_model_runs():
    host, size = models.full_layout("SDXL"), TokenGrid(192, 192)
    plan = make_plan(Settings(), host, Pass(size, 10, course_of((0.04,) * 10)))
    estimate, work = Estimate.of(host, plan), partial(Layout.of(host).work, size, ())
    whole, deep = estimate.predicted.values()
    assert whole
    assert deep
    assert not whole & deep
    assert estimate.is_usual
    ran = 10 - len(whole) - len(deep)
    assert left(estimate, host) == pytest.approx((ran * work() + len(deep) * work(predicts=True)) / 10)


OTHERWISE = (1024, True, "SDXL")  # whole steps in place of layers


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("pixels", [1024, 2048])
@pytest.mark.parametrize("layout", ["SD 1.5", "SDXL"])
def test_a_larger_tolerance_saves_more(layout, pixels, holds):
    host, size = models.full_layout(layout), TokenGrid(pixels // 8, pixels // 8)
    facts = Pass(size, 20, course_of((0.05,) * 20, holds=holds))
    made = [Estimate.of(host, make_plan(BUILT_IN[name], host, facts)) for name in ("Fast", "Balanced", "Closest")]
    saved, whole = [each.saved for each in made], [len(each.predicted["whole"]) for each in made]
    assert sorted({*saved}, reverse=True) == saved or (pixels, holds, layout) == OTHERWISE
    assert whole[0]


@pytest.mark.parametrize("rise", [1e-6, 0.5])
def test_noise_that_rises_by_rounding_or_a_restart_is_estimated_too(rise):
    noise = (1.0, 0.7, 0.5, 0.4, 0.4 * (1 + rise), 0.3, 0.2, 0.1, 0.05, 0.0)
    facts, host = Pass(TokenGrid(128, 128), 9, Course.of_noise(noise)), models.full_layout("SD 1.5")
    assert Estimate.of(host, make_plan(Settings(), host, facts)).saved > 0


class Linear(torch.nn.Module):
    """peft's layer: it holds the original one and two small ones, and shows the weight of the first."""

    def __init__(self, base_layer, rank):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = torch.nn.Linear(base_layer.in_features, rank, bias=False)
        self.lora_B = torch.nn.Linear(rank, base_layer.out_features, bias=False)

    @property
    def weight(self):
        return self.base_layer.weight


def test_the_layers_of_peft_count_as_the_original_and_the_two_small_ones(ldm_sd1):
    small, size = ldm_sd1.copy(), TokenGrid(16, 16)
    before = Layout.of(detect(small.unet)).blocks
    for block in detect(small.unet).sites:
        first = block.block.ff.net[0]
        first.proj = Linear(first.proj, 2)
    after = Layout.of(detect(small.unet))
    added = [now.feed_forward - then.feed_forward for now, then in zip(after.blocks, before, strict=True)]
    assert added == [2 * (block.width + 8 * block.width) for block in before]
    assert after.work(size, ()) > 0
