"""Copies of a patched model: deepcopy, pickle and torch.save keep the patch, and remove_patch finds it on them."""

from __future__ import annotations

import copy
import io
import pickle
from contextlib import nullcontext

import pytest
import torch
from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline

from tests.models import Small, hook_count, noise, pipeline, snapshot
from todo_core import Session, Settings, apply_patch, patched, remove_patch
from todo_core.hosts import detect

LATENT = noise(2, 4, 16, 8)
TARGETS = ["keys/values", "all"]


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model)), "torch.save": saved}


def copied(small, how):
    return Small(COPIES[how](small.unet), small.levels, small.halvings)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_keeps_the_patch_and_does_not_depend_on_the_original(sd1, how, target):
    plain = sd1(LATENT)
    with patched(sd1.unet, factor_1=4, phase="fixed"):
        by_four = sd1(LATENT)
    session = apply_patch(sd1.unet, target=target, factor_1=2, mlp=True, crossattn=True)
    reduced = sd1(LATENT)
    one, other = copied(sd1, how), copied(sd1, how)
    session.record.reset()
    assert torch.equal(one(LATENT), reduced)
    assert session.record.levels == {}
    remove_patch(one.unet)
    assert hook_count(one.unet) == 0
    assert torch.equal(one(LATENT), plain)
    assert torch.equal(sd1(LATENT), reduced), "the original keeps its own"
    remove_patch(sd1.unet)
    assert torch.equal(sd1(LATENT), plain)
    with patched(other.unet, factor_1=4, phase="fixed"):
        assert torch.equal(other(LATENT), by_four)


def test_a_copy_made_inside_a_call_runs_nothing_of_that_call(sd1):
    copies = []
    with patched(sd1.unet, target="all", factor_1=2):
        alone = sd1(LATENT)
        handle = sd1.blocks(1)[0].ff.register_forward_pre_hook(lambda *_: copies.append(copied(sd1, "deepcopy")))
        with torch.no_grad():
            sd1(LATENT)
        handle.remove()
    (other,) = copies
    copies.clear()
    next(iter(other.blocks(1))).ff._forward_pre_hooks.popitem()  # the one that copies
    assert torch.equal(other(LATENT), alone)
    remove_patch(other.unet)
    assert hook_count(other.unet) == 0


def test_a_copied_unet_does_not_carry_its_pipeline_along(diffusers_sd1):
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), diffusers_sd1.unet)
    plain = len(pickle.dumps(pipe.unet))
    apply_patch(pipe)
    assert len(pickle.dumps(pipe.unet)) < plain + 200_000
    other = copy.deepcopy(pipe.unet)
    remove_patch(other)
    assert hook_count(other) == 0


def test_hooks_of_a_session_of_ones_own_come_off_too(sd1):
    Session(detect(sd1.unet), Settings(factor_1=2, target="all")).attach()
    other = copied(sd1, "deepcopy")
    for small in (sd1, other):
        remove_patch(small.unet)
        assert hook_count(small.unet) == 0


# patches inside patches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", ["patched", "apply_patch"])
def test_the_end_of_a_patched_block_brings_the_outer_patch_back(sd1, outer):
    """After an error too."""
    plain, before = sd1(LATENT), snapshot(sd1.unet)
    with patched(sd1.unet, factor_1=4, phase="fixed"):
        by_four = sd1(LATENT)
    with patched(sd1.unet, factor_1=2, phase="fixed") if outer == "patched" else nullcontext():
        if outer == "apply_patch":
            apply_patch(sd1.unet, factor_1=2, phase="fixed")
        by_two = sd1(LATENT)
        with patched(sd1.unet, factor_1=4, phase="fixed"):
            with patched(sd1.unet, method="cluster") as session:
                sd1(LATENT)
            assert session.record.methods == {"cluster"}
            assert torch.equal(sd1(LATENT), by_four)
        assert torch.equal(sd1(LATENT), by_two)
        with pytest.raises(KeyboardInterrupt), patched(sd1.unet, factor_1=4):
            raise KeyboardInterrupt
        assert torch.equal(sd1(LATENT), by_two)
        if outer == "apply_patch":
            remove_patch(sd1.unet)
    assert snapshot(sd1.unet) == before
    assert torch.equal(sd1(LATENT), plain)


def test_remove_patch_inside_a_block_takes_off_the_patch_of_that_block(ldm_sd1):
    with patched(ldm_sd1.unet, factor_1=2):
        with patched(ldm_sd1.unet, factor_1=4):
            remove_patch(ldm_sd1.unet)
            assert hook_count(ldm_sd1.unet) == 0
        assert hook_count(ldm_sd1.unet) > 0, "the inner block has taken off the inner patch alone"
    assert hook_count(ldm_sd1.unet) == 0
