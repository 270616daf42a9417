"""The estimate's multiply-adds beside those that torch counts in real UNet calls."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests import models
from todo_core import Settings, TokenGrid, patched
from todo_core.estimate import Estimate
from todo_core.hosts import detect
from todo_core.patching.plan import Pass, make_plan
from todo_core.patching.space.level_plan import tokens_left
from todo_core.settings import BUILT_IN
from todo_core.work import Layout

TEXT = 77


def counted(small: models.Small, size: tuple[int, int], settings: Settings) -> float:
    """Multiply-adds of a UNet call of one row, as torch counts them."""
    latent, text = models.noise(1, 4, *size), models.noise(1, TEXT, models.TEXT_WIDTH)
    with countable(small.unet), patched(small.unet, settings), FlopCounterMode(display=False) as counter:
        small(latent, text=text)
    return counter.get_total_flops() / 2


@contextmanager
def countable(unet):
    """Attention by plain matrix products: torch does not count its fused kernel for the CPU."""
    if not hasattr(unet, "attn_processors"):
        yield
        return
    before = dict(unet.attn_processors)
    unet.set_default_attn_processor()
    try:
        yield
    finally:
        unet.set_attn_processor(before)


def estimated(small: models.Small, size: tuple[int, int], settings: Settings, steps: int = 10) -> Estimate:
    host = detect(small.unet)
    return Estimate.of(host, make_plan(settings, host, Pass(TokenGrid(*size), steps)))


CASES = {
    "baseline": Settings(method="none"),
    "ToDo 2": Settings(factor_1=2),
    "ToDo 4 and 2": Settings(factor_1=4, factor_2=2),
    "ToMe": Settings(method="similarity", ratio_1=0.5, target="all"),
    "ToMe everywhere": Settings(
        method="similarity", ratio_1=0.25, ratio_2=0.5, target="all", attn=True, crossattn=True, mlp=True
    ),
    "only the feed-forward": Settings(method="cluster", ratio_1=0.5, target="all", attn=False, mlp=True),
    "cluster": Settings(method="cluster", ratio_1=0.3, ratio_2=0.7),
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_multiply_adds_are_those_that_torch_counts(any_model, settings):
    ours, theirs = estimated(any_model, (16, 24), settings).reduced, counted(any_model, (16, 24), settings)
    # matching and clustering, which torch counts too, are the reduction's own work
    slack = 0.06 if settings.method == "similarity" else 0.01
    assert ours == pytest.approx(theirs, rel=slack)


def test_the_window_weighs_the_steps_and_past_its_end_the_other_method_counts(ldm_sd1):
    def reduced(**values):
        return estimated(ldm_sd1, (32, 32), Settings(**values)).reduced

    plain, always, then = reduced(method="none"), reduced(factor_1=2), reduced(method="cluster", ratio_1=0.5)
    assert reduced(factor_1=2, start=0.25, end=0.75) == pytest.approx((plain + always) / 2)
    both = reduced(factor_1=2, end=0.6, afterwards="cluster", ratio_1=0.5)
    assert both == pytest.approx(0.6 * always + 0.4 * then)


def test_predicted_transformers_count_as_what_torch_sees_when_they_do_not_run(any_model):
    small, size = any_model, (16, 24)
    host = detect(small.unet)
    layout, plan = Layout.of(host), make_plan(Settings(interval=2), host, Pass(TokenGrid(*size), 10))
    work, estimate = partial(layout.work, TokenGrid(*size), settings=plan.settings), Estimate.of(host, plan)
    small = small.copy()
    for transformer in detect(small.unet).deep_transformers:
        one_tuple = isinstance(small.unet, models.UNet2DConditionModel)
        transformer.forward = lambda x, *_, one_tuple=one_tuple, **__: (x,) if one_tuple else x
    left = counted(small, size, Settings(method="none"))
    assert work({}, predicts=True) == pytest.approx(left, rel=0.01)
    whole, part = (work(tokens_left(plan.levels), predicts=each) for each in (False, True))
    # of ten steps the first two, the last, and every second of the others run
    assert estimate.reduced == pytest.approx(0.6 * whole + 0.4 * part)


def test_whole_steps_save_their_share_until_the_end(ldm_sd1):
    whole = Settings(predict="whole", interval=3, end=0.7, factor_1=1)
    estimate = estimated(ldm_sd1, (32, 32), whole, steps=20)
    assert estimate.computed == {0, 1, 2, 5, 8, 11, *range(14, 20)}
    assert estimate.saved == pytest.approx(8 / 20)


@torch.no_grad()
def test_the_real_size_of_sd15():
    """SD1.5 is known to take about 400 billion multiply-adds a row at latent 64."""
    layout = Layout.of(detect(models.full_layout("SD 1.5")))
    assert layout.work(TokenGrid(64, 64), {}, Settings()) == pytest.approx(401e9, rel=0.02)


@pytest.mark.parametrize("adds_noise", [True, False])
@pytest.mark.parametrize("pixels", [1024, 2048])
@pytest.mark.parametrize("layout", ["SD 1.5", "SDXL"])
def test_fast_saves_more_than_balanced_and_balanced_more_than_todo_only(layout, pixels, adds_noise):
    host, size = detect(models.full_layout(layout)), TokenGrid(pixels // 8, pixels // 8)
    facts = Pass(size, 20, adds_noise=adds_noise)
    made = [Estimate.of(host, make_plan(BUILT_IN[name], host, facts)) for name in ("Fast", "Balanced", "ToDo only")]
    predicted, saved = [each.predicted for each in made], [each.saved for each in made]
    if layout == "SD 1.5" and adds_noise:
        assert (predicted, len({*saved})) == ([0, 0, 0], 1)
    else:
        assert sorted({*predicted}, reverse=True) == predicted
        assert sorted({*saved}, reverse=True) == saved


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
    assert after.work(size, {}, Settings()) > 0
