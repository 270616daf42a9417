"""The Forge family: the reduction goes through the patches of its patcher, and leaves nothing there."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.models import ldm_sd1, noise
from todo_core import UnsupportedModelError, apply_patch, patched
from todo_core.hosts import detect
from todo_core.patching.work import Layout

from .forge_double import Block, Engine, Patcher, attend

LATENT = noise(2, 4, 16, 16)
BOTH_LEVELS = {"factor_1": 2, "factor_2": 2, "ratio_1": 0.5, "ratio_2": 0.5}
EPSILON = {"predictor": SimpleNamespace(prediction_type="epsilon")}
VELOCITY = {"predictor": SimpleNamespace(prediction_type="v_prediction")}
VELOCITY_ENUM, VIDEO = ({"model_type": SimpleNamespace(name=name)} for name in ("V_PREDICTION", "V_PREDICTION_EDM"))


@pytest.fixture
def engine():
    return Engine(ldm_sd1().unet)


@pytest.mark.parametrize(
    ("text_width", "inner", "side"),
    [(768, EPSILON, 64), (1024, EPSILON, 64), (1024, VELOCITY, 96), (1024, VELOCITY_ENUM, 96), (1024, VIDEO, 96)]
    + [(768, VELOCITY, 64), (2048, EPSILON, 128), (2048, VELOCITY, 128), (1280, EPSILON, 128)],
)
def test_the_trained_size_follows_from_text_width_and_prediction_type_or_is_told(text_width, inner, side):
    engine = Engine(ldm_sd1().unet, **inner)
    for site in detect(engine).sites:
        site.block.attn2.to_k = nn.Linear(text_width, 1)
    assert detect(engine).trained_side == side
    engine.is_sdxl = True
    assert detect(engine).trained_side == 128


class Linear(nn.Module):
    """Forge's is no nn.Linear, and has no in_features."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight


class Packed:
    """A 4-bit weight of bitsandbytes: two values a byte in one column, and the shape beside it."""

    def __init__(self, weight):
        self.shape = (weight.numel() // 2, 1)
        self.quant_state = SimpleNamespace(shape=weight.shape)


@pytest.mark.parametrize("weight_of", [lambda weight: weight, Packed], ids=["whole", "packed"])
def test_the_estimate_counts_linear_layers_that_are_no_subclass(engine, weight_of):
    for site in detect(engine).sites:
        site.block.attn2.to_k = nn.Linear(2048, 1)  # of SDXL
    expected = Layout.of(detect(engine))
    for module in list(engine.unet.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear):
                setattr(module, name, Linear(weight_of(layer.weight)))
    assert Layout.of(detect(engine)) == expected
    assert detect(engine).trained_side == 128


def test_a_transformer_model_and_one_that_is_not_loaded_are_refused_in_plain_words():
    engine = type("Flux", (), {"forge_objects": SimpleNamespace(unet=Patcher(nn.Module()))})()
    engine.forge_objects.unet.model.diffusion_model = nn.Linear(1, 1)
    with pytest.raises(UnsupportedModelError, match="Flux cannot be reduced: its Linear is not a UNet of SD 1"):
        detect(engine)
    with pytest.raises(UnsupportedModelError):
        detect(SimpleNamespace(forge_objects=None))


@pytest.mark.parametrize(
    ("method", "target"),
    [(method, "keys/values") for method in ("downsample", "similarity", "cluster")]
    + [(method, "all") for method in ("downsample", "similarity")],
)
def test_the_output_is_that_of_the_same_unet_in_ldm(engine, method, target):
    settings = {"method": method, "target": target, "crossattn": True, "mlp": True, **BOTH_LEVELS}
    baseline = engine(LATENT)
    with patched(engine, **settings):
        reduced = engine(LATENT)
    other = Engine(ldm_sd1().unet)
    with patched(other.unet, **settings) as session:
        expected = other(LATENT)
    assert session.host.patch_keys is None
    assert torch.equal(reduced, expected)
    assert (reduced - baseline).abs().max() > 0.01
    assert torch.equal(engine(LATENT), baseline)


def test_objects_of_other_extensions_are_not_copied(engine):
    """``clone`` copies the object of a bound method: what it learns in a step would be lost."""

    class Counting:
        seen = 0

        def patch(self, n, k, v, _):
            self.seen += 1
            return n, k, v

    counting = Counting()
    engine.forge_objects.unet.set_model_patch(counting.patch, "attn1_patch")
    with patched(engine, factor_1=2):
        engine(LATENT)
    assert counting.seen == 10, "its attn1 blocks"


def test_the_token_merging_of_the_webui_composes(engine):
    """Only the input is merged, and the output is repeated."""
    patcher = engine.forge_objects.unet
    patcher.set_model_patch(lambda n, k, v, _: (n[:, ::2], k, v), "attn1_patch")
    patcher.set_model_patch(lambda n, _: n.repeat_interleave(2, 1), "attn1_output_patch")
    with patched(engine, factor_1=2) as session:
        engine(LATENT)
    assert session.record.levels[1].keys == 64
    assert session.record.notes == []


@pytest.mark.parametrize(
    "settings",
    [{"factor_1": 2}, {"target": "all", "method": "similarity", "ratio_1": 0.5, "random": False}],
    ids=["keys/values", "all"],
)
def test_values_of_their_own_are_reduced_as_values(engine, settings):
    """Values that a patch doubles give the output of weights that double them."""
    engine.forge_objects.unet.set_model_patch(lambda n, k, v, _: (n, k, 2 * v), "attn1_patch")
    with patched(engine, **settings):
        from_patch = engine(LATENT)
    other = Engine(ldm_sd1().unet)
    for block in other.unet.modules():
        if isinstance(block, Block):
            block.attn1.to_v.weight.data *= 2
    with patched(other, **settings):
        assert torch.equal(other(LATENT), from_patch)


def tiles(tokens):
    return tokens.reshape(4 * len(tokens), -1, tokens.shape[-1])


def attend_to_both(q, k, v, options):
    count = min(k.shape[1], v.shape[1])
    return attend(q, k[:, :count], v[:, :count], options)


def attend_in_tiles(q, k, v, options):
    """As reForge's HyperTile: the rows of the queries become more, those of the keys do not."""
    return attend(q, tiles(k), tiles(v), options).reshape(len(LATENT), -1, q.shape[-1])


@pytest.mark.parametrize(
    ("patch", "replacement", "note"),
    [
        (lambda n, k, v, _: (n, k[:, 1:], v[:, 1:]), None, "its keys are not whole grids of 256 tokens"),
        (lambda n, k, v, _: (n, k, torch.cat([v, v], 1)), attend_to_both, "its values are not those of its keys"),
        (lambda n, k, v, _: (n, k, v[:, ::2]), attend_to_both, "its values are not those of its keys"),
        (lambda n, k, v, _: (tiles(n), k, v), attend_in_tiles, "its queries are split into tiles"),
    ],
)
def test_what_is_no_grid_is_left_alone_with_a_note(engine, patch, replacement, note):
    engine.forge_objects.unet.set_model_patch(patch, "attn1_patch")
    if replacement:
        engine.options["transformer_options"]["patches_replace"] = {"attn1": {None: replacement}}
    baseline = engine(LATENT)
    with patched(engine, factor_1=2) as session:
        assert torch.equal(engine(LATENT), baseline)
    told = f"a layer at level 1 is not reduced: {note}"
    assert [text for text in session.record.notes if "level 1" in text] == [told]


def test_modules_whose_class_the_memory_management_has_replaced_are_reduced(engine):
    """Forge gives each module a class of its own while a model that does not fit stays in the main memory."""
    with patched(engine, factor_1=2):
        expected = engine(LATENT)
    for module in engine.unet.modules():
        module.__class__ = type(f"DynamicSwap_{type(module).__name__}", (type(module),), {})
    with patched(engine, factor_1=2):
        assert torch.equal(engine(LATENT), expected)


def test_options_that_somebody_has_replaced_meanwhile_stay(engine):
    """Removing the patch must not bring back what stood there before."""
    session = apply_patch(engine, factor_1=2)
    theirs = engine.forge_objects.unet.model_options = {"transformer_options": {}}
    session.remove()
    assert engine.forge_objects.unet.model_options is theirs
