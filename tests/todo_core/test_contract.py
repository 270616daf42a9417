"""What every program that makes images relies on: the same cases for each of ``contract_hosts``.

A case sees the UNet's calls from outside. The program must then tell its user what the case saw.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from tests.todo_core.webui import conftest
from todo_core import reduction

from .contract_hosts import A1111, HOSTS, ComfyUI, Python, Stop

module, opts, script = conftest.module, conftest.opts, conftest.script  # of the WebUI's double
OURS = {"factor_1": 2, "factor_2": 1, "interval": 1}
PREDICTS = OURS | {"interval": 2}
ALL, FEW = 64, 16  # tokens at level 1, and keys where they are reduced
IMAGES = {}  # of undisturbed runs


class OfTheModel(Exception):
    """An error of the model, or of another extension."""


@pytest.fixture(params=HOSTS, ids=lambda kind: kind.__name__.removesuffix("Host"))
def host(request, script, monkeypatch):
    return request.param(script, monkeypatch)


# what a case sees -----------------------------------------------------------------------------------------------------


class Calls(list):
    """The UNet's calls, each with its time, the keys of a layer at level 1, and whether a deep transformer ran.

    A call that another cache answers has neither. ``before`` may change the keyword arguments of a call, by its number.
    """

    def __init__(self, unet, monkeypatch):
        super().__init__()
        self.before, self.cached, self.inside, self._last = lambda number, kwargs: kwargs, (), False, None
        kind = type(unet)
        self._call, self._forward = kind.__call__, kind.forward
        monkeypatch.setattr(kind, "__call__", lambda *args, **kwargs: self._begin(*args, **kwargs))
        monkeypatch.setattr(kind, "forward", lambda *args, **kwargs: self._run(*args, **kwargs))
        blocks = {name: module for name, module in unet.named_modules() if hasattr(module, "attn1")}
        places = (r"output_blocks\.1|down_blocks\.0", "mid")
        self.first, deep = (next(block for name, block in blocks.items() if re.match(each, name)) for each in places)
        note_keys = lambda _, args: setattr(self[-1], "keys", args[0].shape[1])  # noqa: E731
        self.handles = [
            self.first.attn1.to_k.register_forward_pre_hook(note_keys),
            deep.register_forward_pre_hook(lambda *_: setattr(self[-1], "deep", True)),
        ]

    def _begin(self, unet, x, time, *args, **kwargs):
        self.append(SimpleNamespace(time=float(time.flatten()[0]), keys=None, deep=False))
        kwargs = self.before(len(self) - 1, kwargs)
        if self._is_cached and not self.inside:
            return self._last
        return self._call(unet, x, time, *args, **kwargs)

    def _run(self, *args, **kwargs):
        """The UNet's own code, which EasyCache of ComfyUI 0.33 may leave out inside its call."""
        if not (self._is_cached and self.inside):
            self._last = self._forward(*args, **kwargs)
        return self._last

    @property
    def _is_cached(self):
        return len(self) - 1 in self.cached


@pytest.fixture
def calls(host, monkeypatch):
    calls = Calls(host.unet, monkeypatch)
    yield calls
    for handle in calls.handles:
        handle.remove()


def told(line):
    """In how many steps tokens are reduced and deep transformers predicted, as a line says it."""

    def count(words):
        found = re.search(words, line)
        return int(found[1]) if found else 0

    steps, skipped = count(r"computed in \d+ of (\d+)"), count(r"the model was not called in (\d+)")
    predicted = steps - count(r"computed in (\d+) of") - skipped if steps else count(r"predicted in (\d+) steps")
    return count(r"level 1 [^;]* in (\d+) "), predicted


def seen(calls):
    """The same from what ran. Calls of one time belong to one step."""
    ran = [call for call in calls if call.keys]
    reduced = {call.time for call in ran if call.keys == FEW}
    return len(reduced), len({call.time for call in ran} - {call.time for call in ran if call.deep})


def keys(calls):
    return [call.keys for call in calls]


def deep(calls):
    """The numbers of the calls in which the deep transformer ran."""
    return [number for number, call in enumerate(calls) if call.deep]


def undisturbed(host, calls, settings, steps=8):
    """The image that the program makes where nothing happens."""
    key = type(host), str(settings), steps
    if key not in IMAGES:
        IMAGES[key] = host.run(settings, steps)
    calls.clear()
    return IMAGES[key]


# the cases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["keys/values", "all"])
def test_tokens_are_reduced_in_each_step_inside_the_window_and_the_next_image_is_as_before(host, calls, target):
    baseline = undisturbed(host, calls, None)
    ours = host.run(OURS | {"start": 0.25, "end": 0.75, "target": target})
    assert keys(calls) == [ALL] * 2 + [FEW] * 4 + [ALL] * 2
    assert told(host.line) == seen(calls) == (4, 0)
    assert host.params is None or host.params["ToDo factor 1"] == "2"
    assert not torch.allclose(ours, baseline, atol=1e-3)
    calls.clear()
    assert torch.equal(host.run(None), baseline)
    assert keys(calls) == [ALL] * 8
    assert not any(key.startswith("ToDo") for key in host.params or {})


def test_every_second_step_is_predicted_below_level_1(host, calls):
    expected = undisturbed(host, calls, PREDICTS)
    assert torch.equal(host.run(PREDICTS), expected)
    assert keys(calls) == [FEW] * 8
    assert deep(calls) == [0, 1, 3, 5, 7]
    assert told(host.line) == seen(calls) == (8, 3)
    assert host.params is None or host.params["ToDo interval"] == "2"


def test_a_second_order_sampler(host, calls):
    """Where some step has calls of both kinds, the line has calls; Python's record has steps."""
    host.run(PREDICTS | {"start": 0.25}, second_order=True)
    reduced, predicted = seen(calls)
    is_mixed = {call.time for call in calls if call.deep} & {call.time for call in calls if not call.deep}
    if is_mixed and not isinstance(host, Python):
        predicted = len(calls) - len(deep(calls))
    assert told(host.line) == (reduced, predicted)
    assert reduced
    assert predicted
    assert {*keys(calls)} == {ALL, FEW}
    assert keys(calls) == sorted(keys(calls), reverse=True)
    assert calls[-1].deep


def test_a_foreign_forward_stays_and_tokens_are_reduced(host, calls):
    unet = host.unet
    theirs = unet.forward = lambda *args, **kwargs: type(unet).forward(unet, *args, **kwargs)
    try:
        host.run(PREDICTS | {"predict": "whole"})
        assert vars(unet)["forward"] is theirs
    finally:
        del unet.forward
    assert keys(calls) == [FEW] * 8
    assert told(host.line) == seen(calls) == (8, 3)
    assert f"{host.why_not_whole}: layers below level 1 are predicted" in host.line
    assert "ToDo predict" not in (host.params or {})


def test_a_cancel_leaves_nothing_and_the_line_tells_what_ran(host, calls):
    expected = undisturbed(host, calls, PREDICTS)
    host.run(PREDICTS, cancel_after=3)
    assert deep(calls) == [0, 1]
    if host.line:
        assert told(host.line) == seen(calls) == (3, 1)
    if host.tells_cancels:
        assert host.line.endswith("; interrupted")
    assert host.params is None or host.params["ToDo factor 1"] == "2"
    host.run(PREDICTS, cancel_after=2)
    assert "nothing predicted" not in host.line, "it might have been"
    host.run(PREDICTS | {"factor_1": 1}, cancel_after=1)
    assert not host.tells_cancels or host.line.endswith("it was interrupted")
    assert torch.equal(host.run(PREDICTS), expected)


@pytest.mark.parametrize("kind", [OfTheModel, Stop])
def test_an_error_in_the_fourth_call_goes_on_and_leaves_nothing(host, calls, kind):
    def fail(*_):
        if len(calls) == 4:
            host.stop() if kind is Stop else _raise(kind)

    expected = undisturbed(host, calls, PREDICTS)
    handle = calls.first.attn2.to_k.register_forward_pre_hook(fail)
    is_caught = kind is Stop and isinstance(host, A1111)
    with nullcontext() if is_caught else pytest.raises(kind):
        host.run(PREDICTS)
    handle.remove()
    assert keys(calls) == [FEW] * 4
    assert bool(host.line) == (is_caught or isinstance(host, (ComfyUI, Python))), "the others tell the error alone"
    if host.line:
        assert told(host.line) == (4, 1)
    assert torch.equal(host.run(PREDICTS), expected)


def _raise(kind):
    raise kind


@pytest.mark.parametrize("first", [1, 4])
def test_an_error_of_ours_is_told_and_costs_no_image(host, calls, first):
    """In Python the user gets the error."""
    baseline, expected, own = undisturbed(host, calls, None), undisturbed(host, calls, OURS), reduction.stride
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "stride", lambda *a, **k: 1 / 0 if len(calls) == first else own(*a, **k))
        if isinstance(host, Python):
            with pytest.raises(ZeroDivisionError):
                host.run(OURS)
        else:
            made = host.run(OURS)
            assert keys(calls) == [FEW] * (first - 1) + [ALL] * (9 - first)
            assert torch.equal(made, baseline) == (first == 1)
            assert re.fullmatch("ToDo stopped in the .*: division by zero", host.line)
            assert host.params is None or ("ToDo factor 1" in host.params) == (first > 1)
    assert torch.equal(host.run(OURS), expected)


@pytest.mark.parametrize("inside", [False, True], ids=["outside the UNet's call", "inside"])
def test_steps_that_another_cache_answers_count_neither_as_computed_nor_as_predicted(host, calls, inside):
    expected = undisturbed(host, calls, PREDICTS, steps=10)
    calls.cached, calls.inside = (4, 6), inside
    host.run(PREDICTS, steps=10)
    assert {number for number, call in enumerate(calls) if call.keys is None} == {4, 6}
    assert told(host.line) == seen(calls)
    assert seen(calls)[0] == 8
    assert seen(calls)[1] > 0
    assert isinstance(host, Python) or "; the model was not called in 2" in host.line
    calls.cached = ()
    assert torch.equal(host.run(PREDICTS, steps=10), expected)


@pytest.mark.parametrize(("changes", "computed"), [({5}, [0, 1, 3, 5, 6, 7, 9]), ({*range(10)}, [*range(10)])])
def test_a_prompt_that_changes_in_mid_pass_begins_the_predictions_anew(host, calls, changes, computed):
    """As [a:b:0.5] and [a|b] do; tokens stay reduced."""
    sign = [1]

    def change(number, kwargs):
        sign[0] *= -1 if number in changes else 1
        name = "context" if "context" in kwargs else "encoder_hidden_states"
        return kwargs | {name: sign[0] * kwargs[name]}

    calls.before = change
    host.run(PREDICTS, steps=10)
    assert deep(calls) == computed
    assert keys(calls) == [FEW] * 10
    assert told(host.line) == seen(calls)
    is_told = "nothing predicted: too few steps in a row are alike" in host.line
    assert is_told == (len(computed) == 10 and not isinstance(host, Python))
