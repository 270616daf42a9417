"""One comparison at a time, that can be stopped and leaves nothing on the model."""

from __future__ import annotations

import threading

import pytest

from tests.models import hook_count
from todo_core import Settings, SettingsError
from todo_lab.demo import models as desk_module
from todo_lab.demo.models import LARGEST, POCKET, Cancelled, Desk, OutOfMemory
from todo_lab.pocket.model.vocabulary import CaptionError
from todo_lab.sampling.checkpoints import ModelError
from todo_lab.sampling.request import Request

REQUEST = Request(prompt="a red ball on stripes", width=64, height=64, steps=1, hires_steps=2)
SETTINGS = Settings(factor_1=2)


def unet(desk):
    return desk._model(POCKET).target.unet


def test_progress_goes_through_the_passes_and_only_forwards(desk):
    heard = []
    desk.compare(POCKET, REQUEST, SETTINGS, progress=lambda share, what: heard.append((share, what)))
    shares, names = zip(*heard, strict=True)
    assert list(shares) == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] < 1
    assert list(dict.fromkeys(name.split(",")[0] for name in names[1:])) == [
        "first pass",
        "whole hires pass",
        "reduced hires pass",
    ]


def test_a_reduced_first_pass_is_told_apart(desk):
    heard = []
    desk.compare(POCKET, REQUEST, Settings(passes="all"), progress=lambda share, what: heard.append(what))
    assert "reduced first pass, step 1 of 1" in heard


@pytest.mark.parametrize("stage", ["first pass", "whole hires pass", "reduced hires pass"])
def test_a_stopped_run_ends_before_its_next_step_and_leaves_no_hook(desk, stage):
    stop, heard = threading.Event(), []

    def progress(share, what):
        heard.append(what)
        if what.startswith(stage):
            stop.set()

    with pytest.raises(Cancelled):
        desk.compare(POCKET, REQUEST, SETTINGS, progress=progress, stop=stop)
    assert [what for what in heard if what.startswith(stage)] == heard[-1:] or stage == "first pass"
    assert hook_count(unet(desk)) == 0
    assert desk.compare(POCKET, REQUEST, SETTINGS).reduced.record.ran_in  # the next run is none the worse


def test_who_cancels_in_the_queue_is_never_computed(desk, monkeypatch):
    monkeypatch.setattr(desk_module, "compare", lambda *_, **__: pytest.fail("it ran"))
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        desk.compare(POCKET, REQUEST, SETTINGS, stop=stop)


def test_two_at_once_run_one_after_the_other(desk, at_once):
    pairs = []
    threads = [threading.Thread(target=lambda: pairs.append(desk.compare(POCKET, REQUEST, SETTINGS))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert at_once == [1, 1]
    assert (pairs[0].reduced_image == pairs[1].reduced_image).all()


def test_what_cannot_be_is_refused_before_anything_is_computed(desk):
    with pytest.raises(SettingsError, match=f"at most {LARGEST} pixels; this would make 4096 x 4096"):
        desk.compare(POCKET, Request(prompt="", width=2048, height=2048), SETTINGS)
    with pytest.raises(SettingsError, match="model = 'other' is not possible; allowed: 'pocket'"):
        desk.compare("other", REQUEST, SETTINGS)
    with pytest.raises(CaptionError, match="never learned: photo, cat"):
        desk.compare(POCKET, Request(prompt="a photo of a cat", width=64, height=64, steps=1), SETTINGS)


def test_a_path_that_is_no_model_is_refused_at_the_start(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        Desk([tmp_path / "nothing.safetensors"])


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_want_of_memory_is_said(desk, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(desk_module, "compare", fails)
    with pytest.raises(OutOfMemory, match="not enough memory for a hires pass of 128 x 128"):
        desk.compare(POCKET, REQUEST, SETTINGS)


def test_models_of_one_name_are_told_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(desk_module.checkpoints, "look", lambda path: None)
    desk = Desk([tmp_path / "a" / "m.safetensors", tmp_path / "b" / "m.safetensors", tmp_path / "pocket"])
    assert desk.names == ["pocket", "m.safetensors", "m.safetensors (2)", "pocket (2)"]


def test_each_model_begins_at_its_own_size_and_guidance(desk, monkeypatch, tmp_path):
    monkeypatch.setattr(desk_module.checkpoints, "look", lambda path: None)
    assert desk.at_home(POCKET) == {"width": 128, "height": 128, "guidance": 2.5}
    own = Desk([tmp_path / "mine.safetensors"])
    assert own.at_home("mine.safetensors") == {"width": 512, "height": 512, "guidance": 7.5}
