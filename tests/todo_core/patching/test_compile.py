"""torch.compile, before and after the patch, by each of its ways. Compiled or not, the outputs are the same."""

import functools

import pytest
import torch
from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline

from tests.models import Small, assert_close, assert_differs, diffusers_unet, ldm_unet, noise, pipeline, snapshot, words
from todo_core import apply_patch, patched, remove_patch
from todo_core.hosts.compiled_code import forget_compiled_code

LATENT = noise(2, 4, 8, 8)
OTHER = noise(2, 4, 8, 6, seed=3)
# one transformer, so that there is little to compile
ONE_BLOCK = {"down_block_types": ["CrossAttnDownBlock2D"], "mid_block_type": None, "up_block_types": ["UpBlock2D"]}
ONE_BLOCK |= {"block_out_channels": [16]}


@functools.cache
def tiny(name):
    if name == "ldm":
        return Small(ldm_unet(channel_mult=[1], attention_resolutions=[1]), {}, 0)
    return Small(diffusers_unet(**ONE_BLOCK), {}, 0)


@pytest.fixture(params=[pytest.param("ldm", marks=pytest.mark.slow), "diffusers"])
def small(request):
    torch.compiler.reset()
    yield tiny(request.param).copy()
    torch.compiler.reset()


def compiled(small, how):
    """The model, compiled. The caller calls what is returned."""
    if how == "wrapper":
        return Small(torch.compile(small.unet, backend="eager"), small.levels, small.halvings)
    blocks = [m for m in small.unet.modules() if type(m).__name__ == "BasicTransformerBlock"]
    for module in [small.unet] if how == "in place" else blocks:
        module.compile(**({} if how == "default backend" else {"backend": "eager"}))
    return small


def counted():
    """The code of each graph that is compiled, and the backend to compile with."""
    graphs = []
    return graphs, lambda graph, _: graphs.append(str(graph.code)) or graph


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "when", "settings"),
    [
        slow("wrapper", "before", {"factor_1": 2}),
        slow("in place", "before", {"factor_1": 2}),
        ("blocks", "before", {"factor_1": 2}),
        slow("default backend", "before", {"factor_1": 2}),
        slow("wrapper", "after", {"factor_1": 2, "phase": "rotate"}),
        slow("in place", "after", {"factor_1": 2, "target": "all", "crossattn": True, "mlp": True}),
        slow("blocks", "after", {"method": "similarity", "ratio_1": 0.5}),
    ],
)
def test_a_model_compiled_before_or_after_the_patch_is_reduced_at_any_step_and_size(small, how, when, settings):
    """The patch may be put on what torch.compile returns, and taken off the original."""
    if how == "default backend":
        try:
            torch.compile(lambda x: x + 1)(torch.ones(2))
        except Exception as error:
            pytest.skip(f"the default backend needs a C++ compiler: {error}")
    calls = [(LATENT, 900.0), (OTHER, 400.0), (LATENT, 10.0)]  # the last one is out of the window
    window, before = {"window": "noise", "end": 0.9, **settings}, snapshot(small.unet)
    plain = [small(*call) for call in calls]
    with patched(small.unet, **window):
        expected = [small(*call) for call in calls]
    assert_close(expected[-1], plain[-1])
    assert_differs(expected[0], plain[0])
    if when == "before":
        other = compiled(small, how)
        before = snapshot(small.unet)
        assert_close(other(*calls[0]), plain[0])
        session = apply_patch(other.unet, **window)
    else:
        session = apply_patch(small.unet, **window)
        other = compiled(small, how)
    for call, uncompiled in zip(calls, expected, strict=True):
        assert_close(other(*call), uncompiled)
    assert session.record.levels
    assert session.record.notes == []
    remove_patch(small.unet)
    assert_close(other(*calls[0]), plain[0])
    assert when == "after" or snapshot(small.unet) == before


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_whole_steps_of_a_compiled_model(when):
    """What runs is compiled, and the images are those of the uncompiled model."""
    torch.compiler.reset()
    unet = diffusers_unet(sample_size=4, **ONE_BLOCK)
    pipe = pipeline(StableDiffusionPipeline, EulerDiscreteScheduler(), unet)
    text = {"prompt_embeds": words(1, seed=4), "negative_prompt_embeds": words(1, seed=5)}
    graphs, backend = counted()

    def generate():
        torch.manual_seed(3)
        return pipe(**text, num_inference_steps=6, height=64, width=64, output_type="latent").images

    whole = {"predict": "whole", "interval": 2}
    with patched(pipe, **whole):
        expected = generate()
    if when == "before":
        pipe.unet = torch.compile(unet, backend=backend)
        assert_differs(expected, generate())
    session = apply_patch(pipe, **whole)
    if when == "after":
        pipe.unet = torch.compile(unet, backend=backend)
    graphs.clear()
    for _ in range(2):
        assert_close(generate(), expected)
    assert (session.record.whole.predicted_in, session.record.deep.predicted_in) == ({3}, set())
    assert session.record.notes == []
    for part in ("conv1", "attn2", "ff_"):
        assert any(part in graph for graph in graphs), part
    torch.compiler.reset()


def test_one_graph_for_all_is_refused_by_torch_with_the_place(small):
    torch.compiler.reset()
    apply_patch(small.unet, factor_1=2)
    small.unet.compile(backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"module_calls|torch.compiler.disable"):
        small(LATENT)


def test_code_of_another_model_of_its_class_is_kept_where_the_unet_is_not_compiled(small):
    graphs, backend = counted()
    other = Small(torch.compile(small.copy().unet, backend=backend), small.levels, small.halvings)
    other(LATENT)
    count = len(graphs)
    with patched(small.unet, factor_1=2):
        small(LATENT)
    other(LATENT)
    assert len(graphs) == count > 0
    small.unet.compile(backend="eager")
    forget_compiled_code(small.unet)
    other(LATENT)
    assert len(graphs) == 2 * count


def test_code_compiled_with_a_patch_goes_with_it_and_gets_nothing_where_it_still_calls_a_hook(small, monkeypatch):
    resets, plain = [], small(LATENT)
    monkeypatch.setattr(torch.compiler, "reset", lambda: resets.append(1))
    session = apply_patch(small.unet, target="all", factor_1=2)
    uncompiled = small(LATENT)
    assert_differs(uncompiled, plain)
    other = compiled(small, "blocks")
    assert_close(other(LATENT), uncompiled)
    assert not resets
    session.detach()
    assert resets
    assert_close(other(LATENT), plain)
