"""Within torch.autocast a search gets its products' dtype, and casts the tokens once."""

from __future__ import annotations

import pytest
import torch

from todo_core.reduction.autocast import uncast


@pytest.mark.parametrize(
    ("device", "is_on", "dtype"),
    [("cuda", True, torch.float16), ("cuda", False, None), ("cpu", True, None), ("mps", True, None)],
)
def test_only_a_gpu_multiplies_in_autocasts_own_dtype(device, is_on, dtype, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: is_on)
    with uncast(torch.device(device)) as found:
        assert found == dtype


def test_a_cpu_does_not_cast_inside_and_does_again_outside():
    tokens = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        with uncast(torch.device("cpu")):
            assert (tokens @ tokens).dtype == torch.float32
        assert (tokens @ tokens).dtype == torch.bfloat16
