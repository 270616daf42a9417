"""Calls that end early, calls inside calls, and blocks that see some rows of a call at a time."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.models import hook_count, lengths, noise, words
from tests.todo_core.patching.test_hooks import METHODS
from todo_core import patched

LATENT = noise(2, 4, 16, 8)
TARGETS = ["keys/values", "all"]
WINDOW = {"window": "noise", "end": 0.8, "factor_1": 2, "phase": "fixed", "mlp": True, "crossattn": True}
IN, OUT = 500.0, 100.0  # timesteps in the window and past it


class Stop(BaseException):
    """As KeyboardInterrupt and the WebUI's InterruptedException: torch runs no hook for it."""


def interrupt(small, module, latent=LATENT, error=Stop, hook="register_forward_pre_hook"):
    """A call in the window that ``error`` ends inside ``module``."""

    def stop(*_):
        raise error

    handle = getattr(module, hook)(stop)
    with pytest.raises(error):
        small(latent, IN)
    handle.remove()


# interruption -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("target", TARGETS)
def test_a_call_out_of_the_window_is_plain_after_an_interrupt_anywhere(sd1, target, error):
    plain = sd1(LATENT, OUT)
    with patched(sd1.unet, target=target, **WINDOW):
        for block in sd1.blocks(1)[:2]:
            for module in (block, block.attn1, block.attn1.to_q, block.attn2.to_k, block.ff):
                interrupt(sd1, module, error=error)
                assert torch.equal(sd1(LATENT, OUT), plain)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_called_alone_after_an_interrupt_is_left_alone(ldm_sd1, target):
    block, tokens = ldm_sd1.blocks(1)[0], noise(2, 16 * 8, 32)
    with patched(ldm_sd1.unet, target=target, factor_1=2):
        for call in (lambda: block(tokens, context=words(2)), lambda: block.attn1(tokens)):
            interrupt(ldm_sd1, block.attn1.to_q)
            with lengths(ldm_sd1) as seen:
                call()
            assert [pair[1:] for pair in seen] == [(16 * 8, 16 * 8)]


def test_an_interrupted_call_is_not_taken_for_an_outer_one(ldm_sd1):
    """The calls that follow count their own steps and take their own seeds."""
    with patched(ldm_sd1.unet, factor_1=2) as session:
        interrupt(ldm_sd1, ldm_sd1.blocks(1)[0].attn1)
        session.record.reset()
        for timestep in (400.0, 300.0):
            ldm_sd1(LATENT, timestep)
        assert session.record.steps == {1, 2}
        session.begin_step(0, 10, [1, 2])
        interrupt(ldm_sd1, ldm_sd1.blocks(1)[0].attn1)
        session.begin_step(0, 10, [1, 2])
        plan = session.plan
        ldm_sd1(noise(1, 4, 8, 8))
        assert session.plan is not plan
        assert session.plan.size.size == (8, 8)


def test_a_module_that_fails_and_is_called_again_is_not_unmerged_by_mistake(ldm_sd1):
    """Others catch an error inside the UNet and call the module again, here with an input that is no grid."""
    block, inputs, outputs = ldm_sd1.blocks(1)[0], [], []

    def fail_and_go_on(norm, args, output):
        inputs.append(output)
        if len(inputs) == 1:
            handle = block.attn1.to_q.register_forward_pre_hook(lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                block.attn1(output)
            handle.remove()
            outputs.append(block.attn1(noise(2, 5, 32)).shape)

    with patched(ldm_sd1.unet, target="all", factor_1=2):
        handle = block.norm1.register_forward_hook(fail_and_go_on)
        try:
            ldm_sd1(LATENT)
        finally:
            handle.remove()
    assert outputs == [(2, 5, 32)]


# calls inside calls -------------------------------------------------------------------------------------------------


def call_inside(small, module, call, before=True):
    """Hook ``module`` so that ``call`` runs inside it, once; a nested UNet call runs the module again."""
    results = []

    def run(*_):
        if not results:
            results.append(None)
            results[0] = call()

    register = module.register_forward_pre_hook if before else module.register_forward_hook
    return register(run), results


def test_an_inner_call_that_is_plain_or_interrupted_leaves_the_outer_one_reduced(sd1):
    plain = sd1(LATENT, OUT)
    with patched(sd1.unet, target="all", **WINDOW):
        alone = sd1(LATENT, IN)
        handle, results = call_inside(sd1, sd1.blocks(1)[1], lambda: sd1(LATENT, OUT))
        assert torch.equal(sd1(LATENT, IN), alone)
        handle.remove()
        interrupted = lambda: interrupt(sd1, sd1.blocks(2)[0], noise(1, 4, 8, 8))  # noqa: E731
        handle, _ = call_inside(sd1, sd1.blocks(1)[0].attn1, interrupted)
        assert torch.equal(sd1(LATENT, IN), alone)
        handle.remove()
    assert torch.equal(results[0], plain)


def test_an_inner_call_takes_no_seeds_and_no_step_of_the_outer_ones(sd1_double):
    latent, text = noise(4, 4, 16, 8).double(), words(4).double()
    inner = lambda: sd1_double(latent[:1], 700.0, text[:1])  # noqa: E731
    with patched(sd1_double.unet, method="similarity", random=True) as session:
        session.begin_step(3, 10, [1, 2, 3, 4])
        alone = [sd1_double(latent[rows], text=text[rows]) for rows in (slice(0, 2), slice(2, 4))]
        session.begin_step(3, 10, [1, 2, 3, 4])
        handle, _ = call_inside(sd1_double, sd1_double.blocks(1)[0].attn1, inner)
        nested = [sd1_double(latent[rows], text=text[rows]) for rows in (slice(0, 2), slice(2, 4))]
        handle.remove()
    torch.testing.assert_close(torch.cat(nested), torch.cat(alone), atol=1e-9, rtol=0)


def test_calls_in_several_threads_do_not_disturb_each_other(sd1):
    """One call waits inside the UNet while another runs from beginning to end."""
    other, results = noise(1, 4, 8, 8), []
    with patched(sd1.unet, target="all", **WINDOW):
        alone = sd1(LATENT, IN)

        def in_a_thread():
            thread = threading.Thread(target=lambda: results.append(sd1(other, OUT)))
            thread.start()
            thread.join()

        handle, _ = call_inside(sd1, sd1.blocks(1)[1].attn1, in_a_thread)
        assert torch.equal(sd1(LATENT, IN), alone)
        handle.remove()
    assert torch.equal(results[0], sd1(other, OUT))
    assert hook_count(sd1.unet) == 0


# rows by themselves -------------------------------------------------------------------------------------------------

IMAGES, TEXT = noise(3, 4, 16, 8, seed=5).double(), words(3, seed=6).double()


def row_by_row(layers):
    """The layers of a part of the UNet, called for each row alone."""
    forward = layers.forward

    def each(x, emb, context=None):
        rows = [slice(i, i + 1) for i in range(len(x))]
        return torch.cat([forward(x[row], emb[row], [text[row] for text in context]) for row in rows])

    return each


ROWS = [({"method": method, "target": "all", "mlp": True, "random": False}, [11, 22, 33]) for method in METHODS]
RANDOM = {"method": "similarity", "random": True}
ROWS += [(RANDOM | {"target": target}, seeds) for target in TARGETS for seeds in ([11, 22, 33], [11, 22, 11])]


@pytest.mark.parametrize(("settings", "seeds"), ROWS)
def test_a_block_that_runs_row_by_row_reduces_each_row_by_itself_with_its_own_seed(
    ldm_sd1_double, settings, seeds, monkeypatch
):
    def reduced():
        with patched(ldm_sd1_double.unet, factor_1=2, phase="fixed", **settings) as session:
            session.begin_step(0, 10, seeds)
            return torch.cat([ldm_sd1_double(IMAGES, text=TEXT), ldm_sd1_double(IMAGES, text=TEXT)])

    together = reduced()
    for name in ldm_sd1_double.attentions(1):
        layers = ldm_sd1_double.unet.get_submodule(name.rsplit(".", 4)[0])
        monkeypatch.setitem(vars(layers), "forward", row_by_row(layers))
    torch.testing.assert_close(reduced(), together, atol=1e-9, rtol=0)


def test_while_another_thread_runs_the_model_nothing_is_predicted_and_a_note_says_so(ldm_sd1):
    """Each of them would continue what the other has begun."""
    small, latent, both_run = ldm_sd1, noise(1, 4, 16, 16), threading.Barrier(2, timeout=60)
    with patched(small.unet, factor_1=2, interval=2) as session:
        other = threading.Thread(target=lambda: small(latent, 100.0))

        def meet(*_):
            both_run.wait()

        first = small.unet.input_blocks[0].register_forward_pre_hook(meet)
        other.start()
        small(latent, 900.0)
        other.join()
        first.remove()
    assert "several threads run this model at a time: nothing is predicted" in session.record.notes
