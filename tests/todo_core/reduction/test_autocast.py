"""Within torch.autocast a search gets its products' dtype, and casts the tokens once."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from tests.fake_gpu import autocast_to_half
from todo_core.reduction.autocast import uncast

ON = {"cuda": autocast_to_half, "cpu": lambda: torch.autocast("cpu", torch.bfloat16), "none": nullcontext}


@pytest.mark.parametrize(
    ("device", "on", "dtype"),
    [("cuda", "cuda", torch.float16), ("cuda", "none", None), ("cpu", "cpu", None), ("mps", "cpu", None)],
)
def test_only_a_gpu_multiplies_in_autocasts_own_dtype(device, on, dtype):
    with ON[on](), uncast(torch.device(device)) as found:
        assert found == dtype


def test_a_cpu_does_not_cast_inside_and_does_again_outside():
    tokens = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        with uncast(torch.device("cpu")):
            assert (tokens @ tokens).dtype == torch.float32
        assert (tokens @ tokens).dtype == torch.bfloat16
