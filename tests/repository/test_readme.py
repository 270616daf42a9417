"""The figures of the README are those of the stored rows."""

from __future__ import annotations

import math

import pandas
import pytest

from tests.repository.test_figures import RESULTS, ROOT, performance, rows_of

COLUMNS = [("SD 1.5", "sd1", 128, 2), ("SD 1.5", "sd1", 256, 4), ("SDXL", "sdxl", 256, 2)]
BASE = {"denoising": 0.5, "hires_steps": 10, "sampler": "DPM++ 2M Karras", "guidance": 6, "width": 128}
README = ROOT / "README.md"


def decibels(layout: str, scale: int, variant: str, **changed: object) -> float:
    """The PSNR of the mean MSE at users' settings, with changes."""
    table = pandas.read_parquet(RESULTS.parent / "users.parquet")
    at = BASE | {"layout": layout, "hires_scale": scale, "variant": variant} | changed
    rows = table[(table[list(at)] == pandas.Series(at)).all(axis=1)]
    assert len(rows) == (20 if scale == 2 else 12)
    return -10 * math.log10(rows["mse"].mean())


@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_the_table_is_that_of_the_stored_rows(column):
    """Speed of a UNet call on a GPU (of ten steps, where deep layers are predicted), and the difference."""
    layout, unet, side, scale = COLUMNS[column]
    calls, passes = (performance.on_gpu(part, unet) for part in ("calls", "passes"))
    speed = 0.0  # of the row above
    for name, *cells in rows_of(README, "Speed and difference"):
        if name == "baseline":
            assert cells[column] == f"{1000 * calls[name, side]['seconds']:.0f} ms"
            continue
        variant = name.replace("interval", "deep layers, interval")
        if name == "as many plain steps":
            steps = round(10 / speed)
            told, variant = f"{steps} of 10", f"fewer steps 0.{steps}"
        elif "interval" not in name:
            speed = calls[name, side]["speed"]
            told = f"{speed:.2f}x"
        elif (name, side) in passes:
            speed = passes["unpatched", side]["pass"] / passes[name, side]["pass"]
            told = f"{speed:.2f}x"
        else:
            assert cells[column] == "", "no such pass was timed"
            break
        assert cells[column] == f"{told}, {decibels(layout, scale, variant):.1f} dB"
