"""Many short sessions, each with something that goes wrong or is unusual. Nothing of a session may stay behind.

Each session has its own number, which is also the seed of all its choices: ``--fault-sessions 100000`` runs more of
them, and ``--fault-first N`` begins at number N.
"""

import copy
import gc
import random
import threading
import weakref
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from tests.models import Small, hook_count, noise, snapshot
from tests.todo_core.patching.test_compile import tiny
from todo_core import Session, Settings, apply_patch, patched, remove_patch
from todo_core.hosts import detect

LATENT = noise(2, 4, 6, 8)
OTHER = noise(1, 4, 4, 5, seed=3)
METHODS = [
    {"factor_1": 2},
    {"factor_1": 3, "resample": "area"},
    {"factor_1": 2, "resample": "max", "phase": "fixed"},
    {"method": "similarity", "ratio_1": 0.5},
    {"method": "similarity", "ratio_1": 0.6, "random": False},
    {"method": "similarity", "ratio_1": 0.3},
    {"method": "cluster", "ratio_1": 0.5},
]
TARGETS = [{}, {"target": "all"}, {"target": "all", "crossattn": True, "mlp": True}, {"target": "all", "attn": False}]
TARGETS[-1]["mlp"] = True


class Case:
    """One session on one model."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.small = tiny(self.random.choice(["ldm", "diffusers"]))
        self.settings = {**self.random.choice(METHODS), **self.random.choice(TARGETS)}
        self.alive = []
        self.fault = self.random.choice(FAULTS)

    @contextmanager
    def session(self):
        """On the model by one of the ways to put it there, and taken off by one of the ways to do so."""
        way, unet = self.random.choice(["patched", "apply_patch", "attach", "twice"]), self.small.unet
        if way == "patched" and self.fault is not swapped_module:  # which puts a new patch on
            with patched(unet, **self.settings):
                yield
            return
        if way == "attach":
            session = Session(detect(unet), Settings(**self.settings)).attach()
        else:
            session = apply_patch(unet, **self.settings)
        if way == "twice":
            session.attach()
        yield
        if self.fault is not swapped_module and self.random.random() < 0.5:
            session.remove()
        else:
            remove_patch(unet)

    def call(self, latent=LATENT):
        return self.small(latent.clone())

    @contextmanager
    def at_any_module(self, action):
        """Do ``action`` once, before some module's call. Every tensor that a module gets must be freed later."""
        calls, when = [0], self.random.randrange(1, 1 + module_calls(self.small))

        def watch(module, args):
            self.alive += [weakref.ref(arg) for arg in args if isinstance(arg, torch.Tensor)]
            calls[0] += 1
            if calls[0] == when:
                action()

        handle = register_module_forward_pre_hook(watch)
        try:
            yield
        finally:
            handle.remove()


def module_calls(small, known={}):  # noqa: B006
    if id(small) not in known:
        calls = []
        handle = register_module_forward_pre_hook(lambda module, args: calls.append(None))
        small(LATENT)
        handle.remove()
        known[id(small)] = len(calls)
    return known[id(small)]


# faults -------------------------------------------------------------------------------------------------------------


def an_error(case):
    error = case.random.choice([ValueError, KeyboardInterrupt])  # torch runs no hook for the latter

    def fail():
        raise error

    with case.at_any_module(fail):
        try:
            case.call(case.random.choice([LATENT, OTHER]))
        except (ValueError, KeyboardInterrupt):
            return


def two_errors(case):
    an_error(case)
    an_error(case)


def nested_call(case):
    latent = case.random.choice([LATENT, OTHER])
    with case.at_any_module(lambda: case.call(latent)):
        outer = case.call()
    assert torch.equal(outer, case.call())


def nested_error(case):
    """An inner call fails and its caller goes on."""

    def inner():
        an_error(case)

    with case.at_any_module(inner):
        outer = case.call()
    assert torch.equal(outer, case.call())


def copied_inside_a_call(case):
    copies = []
    with case.at_any_module(lambda: copies.append(copy.deepcopy(case.small.unet))):
        expected = case.call()
    other = Small(copies.pop(), {}, 0)
    assert torch.equal(other(LATENT.clone()), expected)
    remove_patch(other.unet)
    assert hook_count(other.unet) == 0


def moved_copy(case):
    """To another device while it is patched; the one without data, where ldm's timestep cannot be read."""
    other = copy.deepcopy(case.small.unet).to("meta")
    meta = {"device": "meta"}
    if not hasattr(other, "input_blocks"):
        with torch.no_grad():
            out = other(torch.empty(2, 4, 6, 8, **meta), 5.0, encoder_hidden_states=torch.empty(2, 7, 32, **meta))
        assert out.sample.shape == LATENT.shape
    else:
        with pytest.raises((RuntimeError, NotImplementedError)):
            Small(other, {}, 0)(LATENT.clone())
    remove_patch(other)
    assert hook_count(other) == 0


def other_dtype(case):
    """And back; in between a call may fail, since its input has the old one."""
    case.small.unet.double()
    try:
        case.call()
    except RuntimeError:
        pass
    finally:
        case.small.unet.float()


def swapped_module(case):
    """For a call and to the end of the session: the new one has copies of the hooks, or none."""
    name = case.random.choice(["attn1", "attn2", "ff"])
    block = next(m for m in case.small.unet.modules() if type(m).__name__ == "BasicTransformerBlock")
    own = getattr(block, name)
    new = copy.deepcopy(own)
    if case.random.random() < 0.5:
        new._forward_pre_hooks.clear()
        new._forward_hooks.clear()
        new._forward_pre_hooks_with_kwargs.clear()
    setattr(block, name, new)
    case.call()
    remove_patch(case.small.unet)
    assert hook_count(new) == 0
    setattr(block, name, own)
    apply_patch(case.small.unet, **case.settings)


def threads(case):
    expected = case.call()
    outputs = []
    running = [threading.Thread(target=lambda: outputs.append(case.call())) for _ in range(2)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(outputs) == 2
    assert all(torch.equal(output, expected) for output in outputs)


FAULTS = [an_error, two_errors, nested_call, nested_error, copied_inside_a_call, moved_copy, other_dtype]
FAULTS += [swapped_module, threads, *[an_error] * 7]


# the test -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def quick_garbage():
    """What lives now is not looked at again by the garbage collector."""
    for name in ("ldm", "diffusers"):
        module_calls(tiny(name))
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_nothing_of_a_session_stays_behind(request):
    first, count = (request.config.getoption(f"--fault-{name}") for name in ("first", "sessions"))
    plain = {name: (tiny(name)(LATENT), snapshot(tiny(name).unet)) for name in ("ldm", "diffusers")}
    expected = {}
    done = Counter()
    for number in range(first, first + count):
        case = Case(number)
        unet, key = case.small.unet, f"{id(case.small)} {case.settings}"
        output, before = plain["ldm" if hasattr(unet, "input_blocks") else "diffusers"]
        where = f"session {number}: {case.fault.__name__}, {case.settings}"
        with case.session():
            if key not in expected:
                expected[key] = case.call()
                assert not torch.equal(expected[key], output), where
            case.fault(case)
            assert torch.equal(case.call(), expected[key]), f"{where}: another output after the fault"
        assert snapshot(unet) == before, f"{where}: left on the model"
        if any(tensor() is not None for tensor in case.alive):
            gc.collect()
        assert not any(tensor() is not None for tensor in case.alive), f"{where}: keeps a tensor alive"
        assert torch.equal(case.call(), output), f"{where}: the unpatched output differs"
        done[case.fault.__name__] += 1
    assert done.total() == count
    assert count < 100 or set(done) == {fault.__name__ for fault in FAULTS}
