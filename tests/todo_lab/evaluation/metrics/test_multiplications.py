"""Multiplications are those that a person counts."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from todo_lab.evaluation.metrics.multiplications import Multiplications


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_multiplications_of_each_kind_of_layer(mode):
    tokens, image, queries = torch.ones(2, 5, 8), torch.ones(1, 3, 6, 6), torch.ones(2, 4, 5, 8)
    calls = {
        2 * 5 * 8 * 7: lambda: functional.linear(tokens, torch.ones(7, 8)),
        6 * 6 * 4 * 3 * 9: lambda: functional.conv2d(image, torch.ones(4, 3, 3, 3), padding=1),
        2 * 5 * 5 * 8: lambda: tokens @ tokens.mT,
        2 * 4 * 5 * 3 * (8 + 8): lambda: functional.scaled_dot_product_attention(
            queries, queries[:, :, :3], queries[:, :, :3]
        ),
    }
    for expected, call in calls.items():
        with mode(), Multiplications() as counted:
            call()
        assert counted.count == expected


def test_an_untimed_report_compares_multiplications():
    from todo_lab.evaluation.report.aggregation import to_table

    rows = [
        {"scene": 0, "variant": "baseline", "multiplications": 300},
        {"scene": 0, "variant": "half", "multiplications": 150},
    ]
    table = to_table([{**row, "error": None} for row in rows])
    assert table["speed"].tolist() == [1, 2]
