"""Calls that end early, and calls inside calls."""

import threading

import pytest
import torch

from tests.models import noise, words
from todo_core import patched
from todo_core.patching.steps import rows_of

LATENT = noise(2, 4, 16, 8)
TARGETS = ["keys/values", "all"]
WINDOW = {"window": "noise", "end": 0.8, "factor_1": 2, "phase": "fixed", "mlp": True, "crossattn": True}
IN, OUT = 200.1, 200.0  # timesteps in the window and past it


def interrupt(small, module, latent=LATENT, error=KeyboardInterrupt):
    """A call in the window that ``error`` ends inside ``module``; torch runs no hook for a BaseException."""

    def stop(*_):
        raise error

    with module.register_forward_pre_hook(stop), pytest.raises(error):
        small(latent, IN)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("target", TARGETS)
def test_a_call_out_of_the_window_is_plain_after_an_interrupt_anywhere(sd1, target, error):
    plain = sd1(LATENT, OUT)
    with patched(sd1.unet, target=target, **WINDOW):
        for block in sd1.blocks(1)[:2]:
            for module in (block, block.attn1, block.attn1.to_q, block.attn2.to_k, block.ff):
                interrupt(sd1, module, error=error)
                assert torch.equal(sd1(LATENT, OUT), plain)


def test_an_interrupted_call_is_not_taken_for_an_outer_one(ldm_sd1):
    """The calls that follow count their own steps and take their own seeds."""
    with patched(ldm_sd1.unet, factor_1=2, start=0) as session:
        interrupt(ldm_sd1, ldm_sd1.blocks(1)[0].attn1)
        session.record.reset()
        for timestep in (150.0, 100.0):
            ldm_sd1(LATENT, timestep)
        assert session.record.steps == {1, 2}
        session.begin_step(0, 10, rows_of([1, 2]))
        interrupt(ldm_sd1, ldm_sd1.blocks(1)[0].attn1)
        session.begin_step(0, 10, rows_of([1, 2]))
        plan = session.plan
        ldm_sd1(noise(1, 4, 8, 8))
        assert session.plan is not plan
        assert session.plan.facts.size.size == (8, 8)


def test_a_module_that_fails_and_is_called_again_is_not_unmerged_by_mistake(ldm_sd1):
    """Others catch an error inside the UNet and call the module again, here with an input that is no grid."""
    block, inputs, outputs = ldm_sd1.blocks(1)[0], [], []

    def fail_and_go_on(norm, args, output):
        inputs.append(output)
        if len(inputs) == 1:
            with block.attn1.to_q.register_forward_pre_hook(lambda *_: 1 / 0), pytest.raises(ZeroDivisionError):
                block.attn1(output)
            outputs.append(block.attn1(noise(2, 5, 32)).shape)

    with patched(ldm_sd1.unet, target="all", factor_1=2), block.norm1.register_forward_hook(fail_and_go_on):
        ldm_sd1(LATENT)
    assert outputs == [(2, 5, 32)]


def call_inside(module, call):
    """Hook ``module`` so that ``call`` runs inside it, once; a nested UNet call runs the module again."""
    results = []

    def run(*_):
        if not results:
            results.append(None)
            results[0] = call()

    return module.register_forward_pre_hook(run), results


def in_a_thread(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("run", [lambda call: call(), in_a_thread], ids=["nested", "thread"])
def test_an_inner_call_that_is_plain_or_interrupted_leaves_the_outer_one_reduced(sd1, run):
    plain = sd1(LATENT, OUT)
    with patched(sd1.unet, target="all", **WINDOW):
        alone = sd1(LATENT, IN)
        handle, results = call_inside(sd1.blocks(1)[1].attn1, lambda: run(lambda: sd1(LATENT, OUT)))
        with handle:
            assert torch.equal(sd1(LATENT, IN), alone)
        interrupted = lambda: run(lambda: interrupt(sd1, sd1.blocks(2)[0], noise(1, 4, 8, 8)))  # noqa: E731
        with call_inside(sd1.blocks(1)[0].attn1, interrupted)[0]:
            assert torch.equal(sd1(LATENT, IN), alone)
    assert torch.equal(results[0], plain)


def test_an_inner_call_takes_no_seeds_and_no_step_of_the_outer_ones(sd1_double):
    latent, text = noise(4, 4, 16, 8).double(), words(4).double()
    inner = lambda: sd1_double(latent[:1], 700.0, text[:1])  # noqa: E731
    with patched(sd1_double.unet, method="similarity", random=True, start=0) as session:
        session.begin_step(3, 10, rows_of([1, 2, 3, 4]))
        alone = [sd1_double(latent[rows], text=text[rows]) for rows in (slice(0, 2), slice(2, 4))]
        session.begin_step(3, 10, rows_of([1, 2, 3, 4]))
        with call_inside(sd1_double.blocks(1)[0].attn1, inner)[0]:
            nested = [sd1_double(latent[rows], text=text[rows]) for rows in (slice(0, 2), slice(2, 4))]
    torch.testing.assert_close(torch.cat(nested), torch.cat(alone), atol=1e-9, rtol=0)


def test_while_another_thread_runs_the_model_nothing_is_predicted_and_a_note_says_so(ldm_sd1):
    """Each of them would continue what the other has begun."""
    small, latent, both_run = ldm_sd1, noise(1, 4, 16, 16), threading.Barrier(2, timeout=60)

    def run():
        for timestep in range(900, 0, -100):
            small(latent, float(timestep))

    def meet(*_):
        both_run.wait()

    with (
        patched(small.unet, factor_1=2, interval=2) as session,
        small.unet.input_blocks[0].register_forward_pre_hook(meet),
    ):
        other = threading.Thread(target=run)
        other.start()
        run()
        other.join()
    assert not session.record.predicted
    assert "several threads run this model at a time: nothing is predicted" in session.record.notes


def test_a_thread_that_was_interrupted_in_a_call_keeps_no_other_from_predicting(ldm_sd1):
    """It may be gone for good, and no hook tells that its call has ended."""
    with patched(ldm_sd1.unet, factor_1=1, interval=2) as session:
        in_a_thread(lambda: interrupt(ldm_sd1, ldm_sd1.blocks(1)[0]))
        for timestep in range(900, 0, -100):
            ldm_sd1(LATENT, float(timestep))
    assert session.record.predicted
    assert session.record.notes == []
