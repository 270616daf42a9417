"""The sentences claim what the figures support; the pictures show where the images differ."""

import re
from dataclasses import replace

import numpy as np
import pytest

from todo_core.reason import Reason
from todo_core.settings import declaration
from todo_lab.demo import page_html, pictures, results

BUSY = "This machine is busy: the speeds are uncertain."


def with_difference(comparison, levels):
    """The comparison as if each pixel had changed by this many of 255 levels."""
    grey = np.full_like(comparison.baseline_image, 100)
    return replace(comparison, baseline_image=grey, reduced_image=grey + np.uint8(levels))


@pytest.mark.parametrize(
    ("baseline", "reduced", "time", "speed"),
    [
        ([2.5, 2.5], [0.8, 0.8], "1.60 s", "3.12x faster"),
        ([25.0, 25.0], [7.0, 7.4], "14.4 s", "3.47x faster"),
        ([0.02, 0.02], [0.01, 0.01], "0.020 s", "2.00x faster"),
        ([100.0], [98.0], "98.0 s", "not faster (1.02x)"),
    ],
)
def test_a_caption_has_the_time_and_the_speed_of_the_same_steps(timed, baseline, reduced, time, speed):
    _, told = results.captions([timed(baseline, reduced)])
    assert (told.time, told.speed) == (time, speed)


def test_the_data_has_the_shown_and_the_measured_seconds_and_the_notes_of_each_variant(opening, monkeypatch):
    monkeypatch.setattr(opening[0].reduced.record, "noted", [Reason.MASK])
    data = results.comparison_data(opening, "pocket")
    own, plain = data["variants"]
    assert (own, re.fullmatch("[12] plain steps", plain) is None) == ("custom", False)
    assert data["seconds"] == opening[0].timing.seconds[0]
    assert data["variants"]["custom"]["plan"][-1] == str(Reason.MASK)
    for each, told in zip(opening, data["variants"].values(), strict=True):
        assert told["seconds"] == each.timing.seconds[1] == pytest.approx(data["seconds"] / told["speed"])
        assert told["step_seconds"] == each.reduced.step_seconds
        assert told["settings"] == each.settings.to_dict()


@pytest.mark.parametrize(("slowest", "busy"), [(2.05, False), (2.5, True)])
def test_a_busy_machine_is_named(timed, tmp_path, slowest, busy):
    found = timed([2.0, slowest], [1.0, 1.0])
    lines = results.summary([found], [tmp_path / "a.png", tmp_path / "b.png", tmp_path / "figures.json"]).splitlines()
    assert len(lines) == 5 + busy  # two a picture, and the files
    assert (BUSY in lines) is (BUSY in page_html.heading([found], "pocket")) is busy
    assert lines[-1] == f"Pictures: {tmp_path / 'a.png'}, b.png. All figures: figures.json"
    assert results.comparison_data([found], "pocket")["variants"]["custom"]["uncertain"] is busy


@pytest.mark.parametrize(
    ("levels", "sentence"),
    [
        (0, "equal to the baseline"),
        (2, "42.1 dB: hard to see"),
        (20, "22.1 dB: easy to see"),
    ],
)
def test_the_difference_is_told_by_the_rule_of_thumb_of_the_readme(comparison, monkeypatch, levels, sentence):
    found = with_difference(comparison, levels)
    assert results.difference_words(found) == sentence
    monkeypatch.setattr(declaration, "SEEN", {found.difference.psnr + 0.01: "hard to see", 0: "easy to see"})
    assert "hard to see" not in results.difference_words(found), "it is not rounded into a better class"


def test_the_crop_is_where_the_images_differ_most():
    black = np.zeros((128, 256, 3), np.uint8)
    changed = black.copy()
    changed[0:64, 0:64] = 3  # a large area with small differences
    changed[100:106, 200:206] = 255
    other = black.copy()
    other[10:14, 10:14] = 255
    shown = pictures.zoom({"baseline": black, "ToDo": changed, "plain": other})
    width, step = 16 * 16, 16 * 16 + pictures.MARGIN
    assert shown.shape[1] == 2 * step + width
    for row, white in zip(np.split(shown, 2), ([0, 36, 0], [0, 0, 16]), strict=True):
        crops = [row[:width, at : at + width] for at in (0, step, 2 * step)]
        assert [(crop == 255).mean() * 256 for crop in crops] == pytest.approx(white)


def test_the_overview_has_each_image_above_its_caption():
    black = np.zeros((64, 64, 3), np.uint8)
    shown = pictures.overview({"baseline, 2.00 s": black, "ToDo, 1.00 s": black + np.uint8(60), "plain": black})
    starts = [0, 64 + pictures.MARGIN, 2 * (64 + pictures.MARGIN)]
    assert shown.shape[1] == starts[2] + 64
    assert [int(shown[0, start].max()) for start in starts] == [0, 60, 0]
    assert all(shown[64:, start : start + 64].max() > 200 for start in starts), "each has a caption"


def test_maps_have_one_scale_that_ends_at_its_white_and_equal_images_a_crop_and_a_black_map():
    black = np.zeros((200, 200, 3), np.uint8)
    small, large = black.copy(), black.copy()
    small[:50], large[:50] = 10, 40
    less, shown, none = pictures.difference_maps(black, [small, large, black])
    assert (shown[:50] == 255).all()
    assert 0 < less[:50].max() < 255
    assert not shown[50:200].any()
    assert (less[200:] == shown[200:]).all()
    scale = shown[200 + pictures.MARGIN]
    assert not scale[0].any()
    assert (scale[-1] == 255).all()
    assert (np.diff(scale.astype(int).sum(-1)) >= 0).all()
    assert not none[:200].any()
    assert not pictures.difference_maps(black, [black])[0][:200].any()
    assert not pictures.zoom({"baseline": black, "ToDo": black})[:256, :256].any()
