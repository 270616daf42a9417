"""The sentences claim what the figures support; the pictures show where the images differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from todo_core import Settings
from todo_lab.demo import pictures, results
from todo_lab.sampling.request import Request

BUSY = "This machine is busy: the figure is uncertain."


def with_difference(comparison, levels):
    """The comparison as if each pixel had changed by this many of 255 levels."""
    grey = np.full_like(comparison.baseline_image, 100)
    return replace(comparison, baseline_image=grey, reduced_image=grey + np.uint8(levels))


@pytest.mark.parametrize(
    ("baseline", "reduced", "sentence"),
    [
        ([2.5, 2.5], [0.8, 0.8], "3.1x faster: 5.00 s -> 1.60 s"),
        ([25.0, 25.0], [7.0, 7.4], "3.5x faster: 50.0 s -> 14.4 s"),
        ([0.02, 0.02], [0.01, 0.01], "2.0x faster: 0.040 s -> 0.020 s"),
        ([100.0], [98.0], "Not faster (1.02x): 100 s -> 98.0 s"),
        ([1.0], [2.0], "Not faster (0.50x): 1.00 s -> 2.00 s"),
        ([1.0, 1.0, 4.0], [1.2, 1.2, 1.2], "Not clearly faster: 6.00 s -> 3.60 s"),
    ],
)
def test_the_speed_is_told_with_the_seconds_that_give_it(timed, baseline, reduced, sentence):
    assert results.speed_sentence(timed(baseline, reduced)) == sentence


def test_every_figure_comes_from_the_same_steps(timed):
    """The speed is that of the seconds, 2.4x, not that of the medians."""
    found = timed([4.0, 4.0, 4.2, 4.1], [1.0, 1.0, 1.0, 3.8])
    texts = {each.name: each.text for each in results.measurements(found)}
    assert texts["baseline"] == "16.3 s"
    assert texts["reduced"] == "6.80 s"
    assert texts["speed"] == "2.40x"
    assert texts["typical speed"] == "4.05x"
    data = results.comparison_data(found, "pocket")
    assert data["speed"] == data["seconds"]["baseline"] / data["seconds"]["reduced"]
    assert data["typical_speed"] == 4.05


@pytest.mark.parametrize(("slowest", "busy"), [(2.1, False), (2.5, True)])
def test_a_busy_machine_is_named_in_the_first_line(timed, tmp_path, slowest, busy):
    found = timed([2.0, slowest], [1.0, 1.0])
    lines = results.summary(found, [tmp_path / "a.png", tmp_path / "b.png", tmp_path / "figures.json"]).splitlines()
    assert len(lines) == 3
    assert (BUSY in lines[0]) is busy
    assert lines[2] == f"Pictures: {tmp_path / 'a.png'}, b.png. All figures: figures.json"
    assert results.comparison_data(found, "pocket")["uncertain"] is busy


def test_where_nothing_was_reduced_no_figure_is_called_uncertain(runner):
    request = Request(prompt="a red ball on stripes", width=64, height=64, steps=1, hires_steps=2)
    (found,) = runner.compare(request, [Settings(method="none")])
    busy = replace(found, baseline=replace(found.baseline, step_seconds=[1.0, 3.0]))
    assert busy.timing.is_uncertain
    assert results.doubt(busy) == ""


@pytest.mark.parametrize(
    ("levels", "sentence"),
    [
        (0, "Equal: every pixel is that of the baseline"),
        (1, "48 dB PSNR: the difference is hard to see"),
        (4, "36 dB PSNR: look closely to see the difference"),
        (20, "22 dB PSNR: the difference is easy to see"),
    ],
)
def test_the_difference_is_told_by_the_rule_of_thumb_of_the_readme(comparison, levels, sentence):
    assert results.difference_sentence(with_difference(comparison, levels)) == sentence


def test_no_sentence_rounds_up_into_a_better_class(comparison, monkeypatch):
    almost = with_difference(comparison, 4)
    monkeypatch.setattr(results, "HARD_TO_SEE", almost.difference.psnr + 0.01)
    assert "look closely" in results.difference_sentence(almost)


def test_the_crop_is_where_the_images_differ_most():
    black = np.zeros((128, 256, 3), np.uint8)
    changed = black.copy()
    changed[0:64, 0:64] = 3  # a large area with small differences
    changed[100:106, 200:206] = 255
    top, left = pictures.most_different(black, changed, 16)
    assert top <= 100 <= 106 <= top + 16
    assert left <= 200 <= 206 <= left + 16
    shown = pictures.zoom(black, changed)
    width = 16 * 16
    assert shown.shape[1] == 2 * width + pictures.MARGIN
    assert not shown[:width, :width].any()
    assert (shown[:width, -width:] == 255).mean() == pytest.approx(36 / 256)


def test_the_overview_has_both_images_and_their_difference():
    black = np.zeros((64, 64, 3), np.uint8)
    shown = pictures.overview(black, np.full_like(black, 60), ("baseline, 2.00 s", "reduced, 1.00 s"))
    starts = [0, 64 + pictures.MARGIN, 2 * (64 + pictures.MARGIN)]
    assert shown.shape[1] == starts[2] + 64
    assert [int(shown[0, start].max()) for start in starts] == [0, 60, 255]  # a large difference is bright
    assert all(shown[64:, start : start + 64].max() > 200 for start in starts), "each has a caption"


def test_the_crop_of_equal_images_is_possible():
    grey = np.full((64, 64, 3), 9, np.uint8)
    assert pictures.zoom(grey, grey).shape[2] == 3


def test_the_map_has_a_scale_that_ends_at_its_white():
    black = np.zeros((200, 200, 3), np.uint8)
    changed = black.copy()
    changed[:50] = 20
    shown = pictures.difference_map(black, changed)
    assert (shown[:50] == 255).all()
    assert not shown[50:200].any()
    scale = shown[200 + pictures.MARGIN]
    assert not scale[0].any()
    assert (scale[-1] == 255).all()
    assert (np.diff(scale.astype(int).sum(-1)) >= 0).all()


def test_the_map_of_equal_images_is_black():
    black = np.zeros((64, 64, 3), np.uint8)
    assert not pictures.difference_map(black, black)[:64].any()
