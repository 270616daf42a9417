"""Copies of a patched model: deepcopy and pickle, as torch.save, keep the patch, and remove_patch finds it on them."""

import copy
import pickle
from contextlib import nullcontext

import pytest
import torch

from tests.models import Small, hook_count, noise, snapshot
from todo_core import apply_patch, patched, remove_patch

LATENT = noise(2, 4, 16, 8)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model))}


def copied(small, how):
    return Small(COPIES[how](small.unet), small.levels, small.halvings)


def generate(small):
    """The outputs of a pass of four steps."""
    return [small((1 + step / 10) * LATENT, 900.0 - 200 * step) for step in range(4)]


def alike(one, other):
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ("deepcopy", {"factor_1": 2}),
        ("pickle", {"factor_1": 2, "target": "all", "mlp": True, "crossattn": True}),
        ("pickle", {"factor_1": 1, "factor_2": 1, "interval": 2}),
    ],
    ids=["keys/values", "all", "predicts"],
)
def test_a_copy_keeps_the_patch_and_does_not_depend_on_the_original(sd1, how, settings):
    plain = generate(sd1)
    with patched(sd1.unet, factor_1=4, phase="fixed"):
        by_four = generate(sd1)
    session = apply_patch(sd1.unet, **settings)
    reduced = generate(sd1)
    assert not alike(reduced, plain)
    one, other = copied(sd1, how), copied(sd1, how)
    session.record.reset()
    assert alike(generate(one), reduced)
    assert not session.record.acted
    remove_patch(one.unet)
    assert hook_count(one.unet) == 0
    assert alike(generate(one), plain)
    assert alike(generate(sd1), reduced), "the original keeps its own"
    remove_patch(sd1.unet)
    assert alike(generate(sd1), plain)
    with patched(other.unet, factor_1=4, phase="fixed"):
        assert alike(generate(other), by_four)


def test_a_copy_that_is_made_inside_a_call_runs_none_and_a_copied_module_loses_its_hooks_with_the_patch(sd1):
    small, copies = sd1.copy(), []
    block = small.blocks(1)[0]
    apply_patch(small.unet, factor_1=2)
    copies_once = lambda *_: None if copies else copies.append(copied(small, "deepcopy"))  # noqa: E731
    with block.attn1.to_q.register_forward_pre_hook(copies_once):
        expected = small(LATENT)
    assert torch.equal(copies[0](LATENT), expected)
    block.attn1 = copy.deepcopy(block.attn1)
    remove_patch(small.unet)
    assert hook_count(small.unet) == 0


@pytest.mark.parametrize("outer", ["patched", "apply_patch"])
def test_the_end_of_a_patched_block_brings_the_outer_patch_back(sd1, outer):
    """After an error too."""
    before = snapshot(sd1.unet)
    with patched(sd1.unet, factor_1=2, phase="fixed") if outer == "patched" else nullcontext():
        if outer == "apply_patch":
            apply_patch(sd1.unet, factor_1=2, phase="fixed")
        by_two = sd1(LATENT)
        with patched(sd1.unet, factor_1=4, phase="fixed"):
            by_four = sd1(LATENT)
            with patched(sd1.unet, method="cluster") as session:
                sd1(LATENT)
                remove_patch(sd1.unet)
                assert snapshot(sd1.unet) == before, "that of the inner block alone"
            assert [level.method for level in session.record.ran_in] == ["cluster"]
            assert torch.equal(sd1(LATENT), by_four)
        with pytest.raises(KeyboardInterrupt), patched(sd1.unet, factor_1=4):
            raise KeyboardInterrupt
        assert torch.equal(sd1(LATENT), by_two)
        if outer == "apply_patch":
            remove_patch(sd1.unet)
    assert snapshot(sd1.unet) == before
