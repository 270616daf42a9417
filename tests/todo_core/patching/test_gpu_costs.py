"""What the hooks cost a GPU: launches, copies that block, reads that wait, bytes. Counted on fake tensors, in fp16.

The UNet has level 1 of SD 1.5 in its full width: five blocks. Its attention is replaced, since the memory of torch's
fake one is that of the matrix of all pairs.
"""

import functools
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from diffusers import UNet2DConditionModel

from tests.fake_gpu import Count, autocast_to_half, fake_half, register_guard
from tests.models import XL_BLOCKS
from todo_core import patched
from todo_core.patching.steps import rows_of

TOME = {"method": "similarity", "target": "all", "ratio_1": 0.5, "random": False}
# launches of a UNet call by settings and latent: no more than these
LAUNCHES = [
    ("ToDo 2", {"factor_1": 2}, {64: 5, 256: 5}),
    ("ToDo 2, max", {"factor_1": 2, "resample": "max"}, {64: 5}),
    ("ToDo 2, area", {"factor_1": 2, "resample": "area"}, {64: 5}),
    ("ToMe 0.5", TOME, {64: 160, 256: 700}),
    ("ToMe 0.5, random", {**TOME, "random": True}, {64: 160}),
    ("ToMe 0.5, keys/values", {**TOME, "target": "keys/values"}, {64: 150}),
    ("cluster 0.5", {"method": "cluster", "ratio_1": 0.5}, {64: 930}),
]


@pytest.fixture(scope="module", autouse=True)
def gpu(tmp_path_factory):
    register_guard(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch, fake_half():
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v, **_: torch.empty_like(q))
        yield


def unet_of(**config):
    config = {"sample_size": 64, "layers_per_block": 2, "cross_attention_dim": 768, "attention_head_dim": 8} | config
    with torch.device("cuda"):
        return UNet2DConditionModel(**config).requires_grad_(False)


@functools.cache
def level_1():
    return unet_of(
        block_out_channels=(320,),
        mid_block_type=None,
        down_block_types=["CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D"],
    )


@torch.no_grad()
def call(unet, side):
    with torch.device("cuda"):
        latent, timestep, text = torch.empty(2, 4, side, side), torch.empty(()), torch.empty(2, 77, 768)
    unet(latent, timestep, encoder_hidden_states=text)


def costs(unet, settings, side):
    """Of a call, after one that fills the caches."""
    with patched(unet, **({"start": 0} | settings)) as session:
        for step in range(2):
            session.begin_step(step, 50, rows_of(range(2)))
            with Count() as count:
                call(unet, side)
    assert session.record.notes == []
    assert session.record.levels
    return count


@pytest.mark.parametrize(("settings", "most"), [case[1:] for case in LAUNCHES], ids=[case[0] for case in LAUNCHES])
def test_launches_are_few_and_nothing_waits(settings, most):
    unet = level_1()
    for side, launches in most.items():
        count = costs(unet, settings, side)
        assert count.launches <= launches, (side, count.operations)
        assert (count.blocking, count.syncs) == (0, 0)
        assert count.copies == 5 * bool(settings.get("random")), "one a block"
        assert "factor_1" not in settings or {*count.written} == {torch.float16}


@pytest.mark.parametrize("side", [64, 256])
def test_the_search_needs_no_more_memory_than_the_rest_of_the_block_and_float32_for_sums_alone(side):
    for _ in range(2):
        with Count() as plain:
            call(level_1(), side)
    blocks, numbers, count = 5, 2 * side * side * 320, costs(level_1(), TOME, side)
    assert count.peak <= plain.peak + numbers / 5, "and a few numbers a token"
    assert count.written[torch.float32] <= 1.3 * blocks * numbers * 4, "sums, and what is added to them"
    assert count.written[torch.int64] < count.written[torch.float16] / 20


@pytest.fixture
def in_float32():
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float16)


@pytest.mark.usefixtures("in_float32")
def test_under_autocast_no_token_is_cast_again_for_each_part():
    unet = level_1.__wrapped__()
    casts = {}
    for side in (64, 256):
        with patched(unet, start=0, **TOME) as session:
            session.begin_step(0, 50, rows_of([0, 1]))
            with autocast_to_half():
                for _ in range(2):
                    with Count() as count:
                        call(unet, side)
        casts[side] = count.operations["_to_copy"]
        assert count.operations["bmm"] >= 5
        assert count.written[torch.float16] > 0
    assert casts[64] == casts[256]


@pytest.mark.parametrize(("index", "window"), [(0, "steps"), (None, "steps"), (0, "noise")])
def test_a_patch_reads_the_timestep_once_a_call_or_not_at_all_where_the_sampler_counts(index, window):
    pipeline = SimpleNamespace(unet=level_1(), scheduler=SimpleNamespace(timesteps=torch.arange(2), step_index=index))
    with patched(pipeline, factor_1=2, window=window), Count() as count:
        call(pipeline.unet, 64)
    assert (count.syncs, count.blocking) == (int(index is None or window == "noise"), 0)


@pytest.mark.long
def test_a_call_of_sdxls_layout_runs_few_functions_of_ours():
    """The plan reduces 10 blocks, of 28 here and of 70 there. A GPU that waits for Python gains nothing."""
    widths = {"block_out_channels": (32, 64, 64), "norm_num_groups": 8}
    unet = unet_of(**XL_BLOCKS, **widths, transformer_layers_per_block=(1, 2, 3))
    ran = Counter()

    def note(frame, event, _):
        ran[frame.f_code.co_filename] += event == "call"

    with patched(unet, factor_1=2, factor_2=1, interval=1, start=0) as session, torch.no_grad():
        session.begin_step(0, 50, rows_of([0, 1]))
        call(unet, 16)
        sys.setprofile(note)
        call(unet, 16)
        sys.setprofile(None)
    assert sum(count for path, count in ran.items() if "todo_core" in path and "tests" not in path) <= 420


def test_a_predicted_call_waits_once_and_launches_little_for_each_transformer():
    """Six deep transformers, as in SDXL. The one wait compares prompt and latent with those of the last step."""
    kinds = {"down_block_types": ["CrossAttnDownBlock2D"] * 2, "up_block_types": ["CrossAttnUpBlock2D"] * 2}
    unet, counts = unet_of(block_out_channels=(320, 640), **kinds), []
    with patched(unet, factor_1=1, factor_2=1, interval=2) as session:
        for step in range(4):
            session.begin_step(step, 50, rows_of([0, 1]))
            with Count() as count:
                call(unet, 64)
            counts.append(count)
    first, second, predicted, third = counts
    assert session.record.deep.predicted_in == {2}
    assert [(c.syncs, c.blocking, c.copies) for c in counts] == [(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 0, 0)]
    assert first.launches <= 6 * 1 + 10
    assert max(second.launches, third.launches) <= 6 * 10 + 10, second.operations
    assert predicted.launches <= 6 * 15 + 30, predicted.operations  # all transformers are fitted at once
    assert [third.launches, predicted.launches] == [62, 112]
