"""Comparisons run one at a time, can be stopped, and leave no hook; unknown words are named."""

import threading
from unittest.mock import Mock

import pytest

from tests.models import hook_count
from todo_core import Settings, SettingsError
from todo_lab.demo import model_runner
from todo_lab.demo.model_runner import LARGEST_SIDE, OutOfMemory, UnreadablePrompt
from todo_lab.demo.options import PROMPTS
from todo_lab.demo.progress import Cancelled
from todo_lab.sampling.request import Request

REQUEST = Request(prompt="a red ball on stripes", width=64, height=64, steps=1, hires_steps=2)
SETTINGS = Settings(factor_1=2)


def test_a_stopped_run_ends_before_its_next_step_and_leaves_no_hook_and_the_next_run_is_none_the_worse(runner):
    stop, heard, variant = threading.Event(), [], Settings(factor_1=2, passes="all")

    def progress(share, what):
        heard.append(what)
        if what.startswith(stage):
            stop.set()

    for stage in ("Warm-up", "First pass", "Reduced first pass", "Hires pass"):
        stop.clear()
        heard.clear()
        with pytest.raises(Cancelled):
            runner.compare(REQUEST, variant, progress=progress, stop=stop)
        assert [what for what in heard if what.startswith(stage)] == heard[-1:]
        assert hook_count(runner.model.target.unet) == 0
    said = len(heard)
    with pytest.raises(Cancelled):
        runner.compare(REQUEST, variant, progress=progress, stop=stop)
    assert len(heard) == said, "a run that was cancelled before is not computed"
    assert runner.compare(REQUEST, variant)[0].reduced.record.ran_in


def test_a_run_that_waits_for_another_one_can_be_stopped(runner):
    stop, heard = threading.Event(), []

    def progress(share, what):
        heard.append(what)
        stop.set()

    with runner._lock, pytest.raises(Cancelled):
        runner.compare(REQUEST, SETTINGS, progress=progress, stop=stop)
    assert heard == ["Waiting for another run to end"]


def test_a_picture_beyond_the_largest_side_is_rejected(runner):
    with pytest.raises(SettingsError, match=f"at most {LARGEST_SIDE} pixels; this would make 4096 x 4096"):
        runner.compare(Request(prompt="", width=2048, height=2048), SETTINGS)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("a red haert", 'does not know "haert" (did you mean "heart"?).'),
        ("a Violett, star", 'does not know "Violett," (did you mean "violet"?).'),
        ("a zebra and a haert", f'does not know "zebra", "haert" (did you mean "heart"?). Try "{PROMPTS[0]}".'),
        ("red " * 80, "The prompt is too long for the pocket model. Use fewer words."),
    ],
)
def test_an_unknown_word_is_named_and_the_nearest_one_offered(runner, prompt, message):
    for request in (Request(prompt=prompt, width=64, height=64), Request(prompt="", negative=prompt)):
        with pytest.raises(UnreadablePrompt) as raised:
            runner.compare(request, SETTINGS)
        assert str(raised.value).endswith(message)
        assert len(str(raised.value).split()) < 40  # no list of all words
    for known in PROMPTS:
        model_runner._check_caption(known)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_lack_of_memory_is_reported(runner, monkeypatch, error):
    monkeypatch.setattr(model_runner, "compare_all", Mock(side_effect=error))
    with pytest.raises(OutOfMemory, match="not enough memory for a hires pass of 128 x 128"):
        runner.compare(REQUEST, SETTINGS)
