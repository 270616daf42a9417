"""What is remembered of a grid holds no tensor of a mode: not of torch.export's, and not of a default device."""

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.naive import random_tokens
from todo_core.reduction import downsample, downsampling, match, matching, tables

SIZE = (10, 13)
# each reduction that remembers tables of its grid
REDUCTIONS = {
    "fixed positions": lambda x: downsample(SIZE, (4, 5)),
    "max": lambda x: downsample(SIZE, (4, 5), "max"),
    "similarity": lambda x: match(x, SIZE, 0.5),
    "random": lambda x: match(x, SIZE, 0.5, draws=torch.full((2, 35), 0.6, device=x.device)),
}
every_reduction = pytest.mark.parametrize("build", REDUCTIONS.values(), ids=REDUCTIONS)


class Reduced(torch.nn.Module):
    def __init__(self, build):
        super().__init__()
        self.build = build

    def forward(self, x):
        reduction = self.build(x)
        return reduction.unmerge(reduction.merge(x))


@pytest.fixture
def forgotten():
    """Forgets all grids; no failing test leaves one behind."""
    clear()
    yield clear
    clear()


def clear():
    for kept in (downsampling._flat_positions, downsampling._windows, matching._tables):
        kept.cache_clear()


def fake(module, x):
    with FakeTensorMode() as mode:
        assert module(mode.from_tensor(x)).shape == x.shape


def exported(module, x):
    program = torch.export.export(module, (x,), strict=False).module()
    torch.testing.assert_close(program(x), module(x))


def functional(module, x):
    torch.func.functionalize(module)(x)


def on_meta(module, x):
    assert module(x.to("meta")).device.type == "meta"


@every_reduction
@pytest.mark.parametrize("first", [fake, exported, functional, on_meta])
@pytest.mark.parametrize("real_before", [False, True])
def test_after_any_mode_a_grid_is_reduced_as_before_and_a_mode_works_after_a_call(forgotten, build, first, real_before):
    module, x = Reduced(build), random_tokens(SIZE, dtype=torch.float32)
    expected = module(x)
    if not real_before:
        forgotten()
    first(module, x)
    after = module(x)
    assert type(after) is torch.Tensor
    assert after.equal(expected)


@every_reduction
@pytest.mark.parametrize("remembered", [False, True])
def test_a_default_device_changes_nothing(forgotten, build, remembered):
    module, x = Reduced(build), random_tokens(SIZE, dtype=torch.float32)
    expected = module(x)
    for context in (torch.device("meta"), nullcontext()):
        if not remembered:
            forgotten()
        with context:
            assert module(x).equal(expected)


def test_real_tables_are_made_once():
    size = (14, 22), (2, 2), torch.device("cpu")
    assert matching._tables(*size) is matching._tables(*size)
    with FakeTensorMode():
        assert not tables.makes_plain_tensors(torch.device("cpu"))
        assert matching._tables(*size) is not matching._tables(*size)
