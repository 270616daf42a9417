"""Comparisons run one at a time, can be stopped, and leave no hook."""

from __future__ import annotations

import threading

import pytest

from tests.models import hook_count
from todo_core import Settings, SettingsError
from todo_lab.demo import model_runner
from todo_lab.demo.model_runner import LARGEST_SIDE, POCKET, Cancelled, ModelRunner, OutOfMemory
from todo_lab.pocket.model.vocabulary import CaptionError
from todo_lab.sampling.checkpoints import ModelError
from todo_lab.sampling.request import Request

REQUEST = Request(prompt="a red ball on stripes", width=64, height=64, steps=1, hires_steps=2)
SETTINGS = Settings(factor_1=2)


def unet(runner):
    return runner._model(POCKET).target.unet


def test_progress_follows_the_passes_and_never_decreases(runner):
    heard = []
    runner.compare(POCKET, REQUEST, SETTINGS, progress=lambda share, what: heard.append((share, what)))
    shares, names = zip(*heard, strict=True)
    assert list(shares) == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] < 1
    assert list(dict.fromkeys(name.split(",")[0] for name in names[1:])) == [
        "first pass",
        "baseline hires pass",
        "reduced hires pass",
    ]


def test_a_reduced_first_pass_has_its_own_name(runner):
    heard = []
    runner.compare(POCKET, REQUEST, Settings(passes="all"), progress=lambda share, what: heard.append(what))
    assert "reduced first pass, step 1 of 1" in heard


@pytest.mark.parametrize("stage", ["first pass", "baseline hires pass", "reduced hires pass"])
def test_a_stopped_run_ends_before_its_next_step_and_leaves_no_hook(runner, stage):
    stop, heard = threading.Event(), []

    def progress(share, what):
        heard.append(what)
        if what.startswith(stage):
            stop.set()

    with pytest.raises(Cancelled):
        runner.compare(POCKET, REQUEST, SETTINGS, progress=progress, stop=stop)
    assert [what for what in heard if what.startswith(stage)] == heard[-1:] or stage == "first pass"
    assert hook_count(unet(runner)) == 0
    assert runner.compare(POCKET, REQUEST, SETTINGS).reduced.record.ran_in  # the next run is none the worse


def test_a_run_cancelled_in_the_queue_is_never_computed(runner, monkeypatch):
    monkeypatch.setattr(model_runner, "compare", lambda *_, **__: pytest.fail("it ran"))
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        runner.compare(POCKET, REQUEST, SETTINGS, stop=stop)


def test_two_at_once_run_one_after_the_other(runner, at_once):
    comparisons = []
    threads = [
        threading.Thread(target=lambda: comparisons.append(runner.compare(POCKET, REQUEST, SETTINGS))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert at_once == [1, 1]
    assert (comparisons[0].reduced_image == comparisons[1].reduced_image).all()


def test_invalid_requests_are_rejected_before_anything_is_computed(runner):
    with pytest.raises(SettingsError, match=f"at most {LARGEST_SIDE} pixels; this would make 4096 x 4096"):
        runner.compare(POCKET, Request(prompt="", width=2048, height=2048), SETTINGS)
    with pytest.raises(SettingsError, match="model = 'other' is not possible; allowed: 'pocket'"):
        runner.compare("other", REQUEST, SETTINGS)
    with pytest.raises(CaptionError, match="never learned: photo, cat"):
        runner.compare(POCKET, Request(prompt="a photo of a cat", width=64, height=64, steps=1), SETTINGS)


def test_a_path_without_a_model_is_rejected_at_the_start(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        ModelRunner([tmp_path / "nothing.safetensors"])


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_lack_of_memory_is_reported(runner, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(model_runner, "compare", fails)
    with pytest.raises(OutOfMemory, match="not enough memory for a hires pass of 128 x 128"):
        runner.compare(POCKET, REQUEST, SETTINGS)


def test_models_with_the_same_name_are_numbered(monkeypatch, tmp_path):
    monkeypatch.setattr(model_runner.checkpoints, "check_path", lambda path: None)
    runner = ModelRunner([tmp_path / "a" / "m.safetensors", tmp_path / "b" / "m.safetensors", tmp_path / "pocket"])
    assert runner.names == ["pocket", "m.safetensors", "m.safetensors (2)", "pocket (2)"]


def test_each_model_has_its_own_default_size_and_guidance(runner, monkeypatch, tmp_path):
    monkeypatch.setattr(model_runner.checkpoints, "check_path", lambda path: None)
    assert runner.request_defaults(POCKET) == {"width": 128, "height": 128, "guidance": 2.5}
    own = ModelRunner([tmp_path / "mine.safetensors"])
    assert own.request_defaults("mine.safetensors") == {"width": 512, "height": 512, "guidance": 7.5}
