"""Progress tells what happens and how long the rest takes."""

import io
import re
import threading

import pytest

from todo_core import Settings
from todo_lab.demo.progress import ProgressText, StepProgress, stages_of
from todo_lab.sampling.request import Request

REQUEST = Request(prompt="", width=64, height=64, steps=4, hires_scale=4.0, hires_steps=5)
FIRST_STEP, BASELINE_STEP, REDUCED_STEP, PLAIN_STEP = 0.125, 3.0, 1.0, 2.0  # seconds; a first step has few pixels


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def run(settings, clock, on_step, cold=1.0):
    """The order in which `compare_all` reports the steps, with the time that each takes."""
    for seconds in (BASELINE_STEP, REDUCED_STEP):
        on_step("warm-up", 0, 1)
        clock.now += cold * seconds
    for name in ("first", "reduced first") if settings.passes == "all" else ("first",):
        for step in range(REQUEST.steps):
            on_step(name, step, REQUEST.steps)
            clock.now += FIRST_STEP
    for step in range(REQUEST.hires_steps):
        for seconds in (BASELINE_STEP, REDUCED_STEP):
            on_step("hires", step, REQUEST.hires_steps)
            clock.now += seconds
    for step in range(REQUEST.hires_steps):
        on_step("plain", step, REQUEST.hires_steps)
        clock.now += PLAIN_STEP


def heard_of(settings, **options):
    heard, clock = [], Clock()
    tell = lambda fraction, text: heard.append((fraction, text, clock.now))  # noqa: E731
    run(settings, clock, StepProgress(stages_of(REQUEST, settings), tell, threading.Event(), clock), **options)
    return heard, clock.now


@pytest.mark.parametrize("passes", ["hires", "all"])
def test_progress_follows_the_stages_and_never_decreases(passes):
    """A first pass has a 16th of the pixels."""
    heard, _ = heard_of(Settings(passes=passes))
    works = {"Warm-up, one step of each pass": 2, "First pass": 4 / 16}
    works |= {"Reduced first pass": 4 / 16} if passes == "all" else {}
    works |= {"Hires pass, baseline and reduced in turn": 10, "Plain steps of the same time": 5}
    fractions = [fraction for fraction, *_ in heard]
    assert fractions == sorted(fractions)
    assert 0 == fractions[0] < fractions[-1] == pytest.approx(1 - 1 / sum(works.values()))
    assert list(dict.fromkeys(text.partition(":")[0] for _, text, _ in heard)) == [*works]


def test_a_slow_warm_up_does_not_count_once_the_hires_pass_has_steps():
    heard, end = heard_of(Settings(), cold=5.0)
    hires = [(text, now) for _, text, now in heard if text.startswith("Hires") and "step 1 of" not in text]
    assert len(hires) == REQUEST.hires_steps - 1
    for text, now in hires:
        assert int(re.search(r"about (\d+) s left", text)[1]) == round(end - now)


def test_there_is_a_line_for_each_stage_and_every_ten_seconds():
    pipe, clock = io.StringIO(), Clock()
    progress = ProgressText(pipe, clock)
    run(Settings(), clock, StepProgress(stages_of(REQUEST, Settings()), progress, threading.Event(), clock))
    lines = pipe.getvalue().splitlines()
    assert [line.partition(", about")[0] for line in lines] == [
        "Warm-up, one step of each pass: step 1 of 1",
        "First pass: step 1 of 4",
        "Hires pass, baseline and reduced in turn: step 1 of 5",
        "Hires pass, baseline and reduced in turn: step 4 of 5",
        "Plain steps of the same time: step 1 of 5",
    ]
    assert all("left" in line for line in lines[1:])
