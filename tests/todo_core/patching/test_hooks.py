"""What the hooks make of the ways in which others call, wrap and replace attentions and blocks."""

import dataclasses
import types
from contextlib import ExitStack, contextmanager

import pytest
import torch
import torch.nn.functional as F

import todo_core.reduction
from tests.models import assert_differs, keys_of, lengths, noise, snapshot
from todo_core import Session, patched
from todo_core.hosts import detect
from todo_core.patching.steps import rows_of

SIZE = (16, 8)
TOKENS = 16 * 8
LATENT = noise(2, 4, *SIZE)
FIXED = {"factor_1": 2, "phase": "fixed"}
TARGETS = ["keys/values", "all"]
METHODS = ["downsample", "similarity", "cluster"]


def replace_self_attention(monkeypatch, small, attend):
    """Replace ``_forward`` on each block of level 1, as ControlNet does; ``attend(block, x_norm)`` makes its output."""

    def _forward(self, x, context=None):
        x = attend(self, self.norm1(x)) + x
        x = self.attn2(self.norm2(x), context=context) + x
        return self.ff(self.norm3(x)) + x

    for block in small.blocks(1):
        # not setattr: its undo would leave the method on the shared model's instance
        monkeypatch.setitem(vars(block), "_forward", types.MethodType(_forward, block))


def assert_left_whole(small, reason, **settings):
    """The patch changes no bit and says why, once for several calls."""
    plain = small(LATENT)
    with patched(small.unet, **(FIXED | settings)) as session:
        assert torch.equal(small(LATENT), plain)
        small(LATENT, 400.0)
    assert len(session.record.notes) == 1
    assert reason in session.record.notes[0]
    assert session.record.levels == {}


# contexts -----------------------------------------------------------------------------------------------------------


def row_by_row(*contexts):
    """Self-attention with each row in a call of its own."""
    return lambda block, x: torch.cat([block.attn1(row, *(of(row) for of in contexts)) for row in x.split(1)])


def layers_row_by_row(monkeypatch, small):
    """Each transformer of level 1 is called for each row alone."""
    for name in small.attentions(1):
        layers = small.unet.get_submodule(name.rsplit(".", 4)[0])

        def each(x, emb, context, run=layers.forward):
            rows = [slice(i, i + 1) for i in range(len(x))]
            return torch.cat([run(x[row], emb[row], [text[row] for text in context]) for row in rows])

        monkeypatch.setitem(vars(layers), "forward", each)


def joined(has_context):
    """StyleAlign hands over (1, b*n, c): each image looks at the tokens of all."""

    def attend(block, x):
        shared = x.reshape(1, -1, x.shape[-1])
        return block.attn1(shared, context=shared if has_context else None).reshape(x.shape)

    return attend


WAYS = {
    "context": lambda block, x: block.attn1(x, x),
    "context by keyword": lambda block, x: block.attn1(x, context=x),
    "keywords": lambda block, x: block.attn1(x=x, context=None),
    "input alone": lambda block, x: block.attn1(x),
    "row by row": row_by_row(),
    # with the input as its own bank, twice the same keys stand in the sum: the result is that without a bank
    "one bank": lambda block, x: block.attn1(x, torch.cat([x] * 2, 1)),
    "two banks": lambda block, x: block.attn1(x, torch.cat([x] * 3, 1)),
    "row by row with a bank": row_by_row(lambda row: torch.cat([row] * 2, 1)),
    "layers row by row": None,
}
STOCK = {}  # what is reduced where nobody has replaced a call, by settings
KEYS = [FIXED, {"method": "similarity", "random": True}, {"method": "cluster"}]
ALL = [{"target": "all", "mlp": True, "random": False, "method": method} | FIXED for method in METHODS]
ALL += [{"target": "all", "method": "similarity", "random": True}]


@pytest.mark.parametrize(
    ("way", "settings"),
    [(way, settings) for way in WAYS for settings in KEYS]
    + [(way, ALL[0]) for way in [*WAYS][:4]]
    + [("layers row by row", settings) for settings in ALL],
)
def test_however_self_attention_is_called_it_is_reduced_alike(ldm_sd1_double, way, settings, monkeypatch):
    """Each grid by itself, with the seed of its image."""
    latent, text = noise(3, 4, *SIZE).double(), noise(3, 7, 32).double()

    def reduced():
        with patched(ldm_sd1_double.unet, start=0, **settings) as session:
            session.begin_step(0, 10, rows_of([11, 22, 11]))
            made = torch.cat([ldm_sd1_double(latent, text=text) for _ in range(2)])
        assert session.record.levels
        assert session.record.notes == []
        return made

    if str(settings) not in STOCK:
        STOCK[str(settings)] = reduced()
    if WAYS[way]:
        replace_self_attention(monkeypatch, ldm_sd1_double, WAYS[way])
    else:
        layers_row_by_row(monkeypatch, ldm_sd1_double)
    torch.testing.assert_close(reduced(), STOCK[str(settings)], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("tokens", "context", "mask", "why"),
    [
        ((2, 128, 32), None, "by keyword", "it has a mask"),
        ((2, 128, 32), None, "by place", "it has a mask"),
        ((2, 127, 32), None, None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (2, 192, 32), None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (256, 32), None, "its keys are not whole grids of 128 tokens"),
        ((2, 128, 32), (1, 256, 32), None, "its keys come from another source"),
        ((2, 128, 32), (2, 128, 32), None, "its keys come from another source"),
        ((1, 256, 32), (1, 256, 32), None, "its keys come from another source"),  # beside joined rows
    ],
)
def test_of_any_other_context_the_attention_gets_what_it_was_given(ldm_sd1, tokens, context, mask, why, monkeypatch):
    x, seen = noise(*tokens), []
    given = None if context is None else noise(*context)
    masks = {None: ((), {}), "by keyword": ((), {"mask": x > 0}), "by place": ((x > 0,), {})}[mask]
    for attention in ldm_sd1.attentions(1).values():
        monkeypatch.setitem(vars(attention), "forward", lambda x, context=None, mask=None: seen.append(context))
    replace_self_attention(
        monkeypatch, ldm_sd1, lambda block, own: block.attn1(x, given, *masks[0], **masks[1]) or torch.zeros_like(own)
    )
    with patched(ldm_sd1.unet, **FIXED) as session:
        ldm_sd1(LATENT)
    assert len(seen) == 3
    assert all(each is given for each in seen)
    assert session.record.notes == [f"a layer at level 1 is not reduced: {why}"]
    assert session.record.levels == {}


@pytest.mark.parametrize(
    ("attend", "reason"),
    [
        (joined(False), f"its input is not a grid of {TOKENS} tokens"),
        (row_by_row(), f"its input is not a grid of {TOKENS} tokens"),
        (lambda block, x: block.attn1(x, mask=x[..., 0] > 0), "it has a mask"),
        (lambda block, x: block.attn1(x, None, x[..., 0] > 0), "it has a mask"),
    ],
)
def test_target_all_leaves_an_attention_whole_that_sees_more_than_its_rows(ldm_sd1, attend, reason, monkeypatch):
    replace_self_attention(monkeypatch, ldm_sd1, attend)
    assert_left_whole(ldm_sd1, reason, target="all")


@pytest.mark.parametrize("target", TARGETS)
def test_a_mask_for_the_attention_of_diffusers_is_left_alone_too(diffusers_sd1, target):
    mask = noise(2, 1, TOKENS, seed=9)
    small = diffusers_sd1.copy()
    for attention in small.attentions(1).values():
        add_mask = lambda _, args, kwargs: (args, {**kwargs, "attention_mask": mask})  # noqa: E731
        attention.register_forward_pre_hook(add_mask, with_kwargs=True)
    assert_left_whole(small, "mask", target=target)


# others' patches ----------------------------------------------------------------------------------------------------


def tiled(attention):
    """HyperTile's wrapper: attention within the upper and the lower half, each for itself."""
    forward = attention.forward

    def wrapper(x, context=None, mask=None):
        tiles = x.unflatten(1, (2, -1)).flatten(0, 1)
        return forward(tiles, context, mask).unflatten(0, (-1, 2)).flatten(1, 2)

    return wrapper


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("wrap", "params"),
    [
        (tiled, {"enabled": True, "tile_size": 128, "depth": -2}),  # 4 tokens: the grid is small
        (None, {"enabled": True, "tile_size": 1024, "depth": 0}),  # a tile as large as the image
        (None, {"enabled": False}),
    ],
)
def test_attention_that_hypertile_splits_is_left_whole_and_noted(ldm_sd1, target, wrap, params, monkeypatch):
    for attention in ldm_sd1.attentions(1).values():
        monkeypatch.setattr(attention, "__webui_hypertile_params", types.SimpleNamespace(**params), raising=False)
        monkeypatch.setitem(vars(attention), "forward", wrap(attention) if wrap else attention.forward)
    if wrap:
        assert_left_whole(ldm_sd1, "HyperTile", target=target)
        return
    with patched(ldm_sd1.unet, target=target, **FIXED) as session, lengths(ldm_sd1) as seen:
        ldm_sd1(LATENT)
    assert keys_of(ldm_sd1, 1, seen) == {(TOKENS if target == "keys/values" else 32, 32)}
    assert session.record.notes == []


@contextmanager
def around_transformers(small, before, after):
    """Others change the grid inside the UNet, for the transformers of level 1 alone."""
    names = {name.split(".transformer_blocks")[0] for name in small.attentions(1)}
    with ExitStack() as stack:
        for transformer in map(small.unet.get_submodule, names):
            stack.enter_context(transformer.register_forward_pre_hook(lambda _, args: (before(args[0]), *args[1:])))
            stack.enter_context(transformer.register_forward_hook(lambda _, args, output: after(output)))
        yield


DEEP_SHRINK = (lambda x: F.avg_pool2d(x, 2), lambda x: F.interpolate(x, scale_factor=2))  # Kohya's
TURNED = [lambda x: x.transpose(2, 3).contiguous()] * 2  # as many tokens as the grid that was planned


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("change", "size", "pair"), [(DEEP_SHRINK, (8, 4), (32, 8)), (TURNED, SIZE[::-1], (128, 32))])
def test_a_grid_that_others_change_inside_the_unet_is_planned_as_it_is_seen(ldm_sd1, target, change, size, pair):
    patch = patched(ldm_sd1.unet, target=target, **FIXED)
    with around_transformers(ldm_sd1, *change), patch as session, lengths(ldm_sd1) as seen:
        assert ldm_sd1(LATENT).shape == LATENT.shape
    assert keys_of(ldm_sd1, 1, seen) == {(pair[target == "all"], pair[1])}
    assert session.record.levels[1].grid.size == size
    assert session.record.levels[1].target_grid.size == (size[0] // 2, size[1] // 2)
    assert session.record.notes == []


def test_the_note_of_a_call_that_reduced_nothing_has_the_reason_of_its_grid(ldm_sd1):
    """Deep shrink leaves a grid at which auto does nothing."""
    host = dataclasses.replace(detect(ldm_sd1.unet), trained_side=8)
    with around_transformers(ldm_sd1, *DEEP_SHRINK):
        session = Session(host, todo_core.Settings(factor_2=1)).attach()
        ldm_sd1(noise(1, 4, 16, 16))
    session.remove()
    why = "this model was trained at 64 x 64"
    assert session.record.notes == [f"a call that was to be reduced has reduced nothing: {why}"]


# errors -------------------------------------------------------------------------------------------------------------


def boom(*_, **__):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("target", "method", "where", "function"),
    [
        ("keys/values", "downsample", todo_core.reduction, "stride"),
        ("all", "similarity", todo_core.reduction, "random_draws"),
        ("keys/values", "cluster", todo_core.reduction, "cluster"),
        ("keys/values", "downsample", todo_core.patching.session, "make_plan"),
    ],
)
def test_an_error_of_ours_is_raised_or_told_and_nothing_stays(sd1, target, method, where, function, monkeypatch):
    plain, before, errors = sd1(LATENT), snapshot(sd1.unet), []
    settings = todo_core.Settings(target=target, method=method, crossattn=True, mlp=True, factor_1=2)
    session = Session(detect(sd1.unet), settings, on_error=errors.append).attach()
    monkeypatch.setattr(where, function, boom)
    for _ in range(2):  # the next call tries again
        assert torch.equal(sd1(LATENT), plain)
    assert [type(error) for error in errors] == [ZeroDivisionError] * 2
    with pytest.raises(RuntimeError):  # the model's own
        sd1(LATENT, text=noise(2, 7, 33))
    monkeypatch.undo()
    assert_differs(sd1(LATENT), plain)
    session.remove()
    assert len(errors) == 3
    monkeypatch.setattr(where, function, boom)
    with pytest.raises(ZeroDivisionError), patched(sd1.unet, settings):
        sd1(LATENT)
    assert snapshot(sd1.unet) == before


@pytest.mark.parametrize("has_context", [False, True])
def test_grids_joined_to_one_row_are_reduced_apart_with_the_seeds_of_their_images(ldm_sd1, has_context, monkeypatch):
    keys = []
    to_k = ldm_sd1.blocks(1)[0].attn1.to_k
    with to_k.register_forward_pre_hook(lambda _, args: keys.append(args[0])):
        for _ in range(2):
            with patched(ldm_sd1.unet, method="similarity", random=True, start=0) as session:
                session.begin_step(0, 10, rows_of([11, 22]))
                ldm_sd1(LATENT)
            replace_self_attention(monkeypatch, ldm_sd1, joined(has_context))
    assert keys[0].shape == (2, TOKENS // 2, 32)
    assert torch.equal(keys[1].reshape(keys[0].shape), keys[0])


def test_a_module_of_a_block_that_does_not_run_is_left_alone(ldm_sd1):
    """Others may call it between two blocks of the UNet's call."""
    block, seen = ldm_sd1.blocks(1)[0], []

    def call_alone(*_):
        with lengths(ldm_sd1) as found:
            block.attn1(noise(2, TOKENS, 32))
        seen.extend(found)

    with patched(ldm_sd1.unet, target="all", factor_1=2), block.register_forward_hook(call_alone):
        ldm_sd1(LATENT)
    assert [pair[1:] for pair in seen] == [(TOKENS, TOKENS)]


def test_a_block_without_cross_attention_is_reduced_at_what_it_has(diffusers_sd1):
    small = diffusers_sd1.copy()
    for block in small.blocks(1):
        block.attn2 = None
    settings = {"target": "all", "crossattn": True, "mlp": True}
    with patched(small.unet, **settings, **FIXED) as session, lengths(small) as seen:
        small(LATENT)
    assert keys_of(small, 1, seen) == {(32, 32)}
    assert session.record.notes == []


def test_a_session_reads_well(ldm_sd1):
    with patched(ldm_sd1.unet, factor_1=2) as session:
        assert "attached to UNetModel; level 1: 32 x 32, 1,024 tokens -> 256 by downsample" in repr(session)
        assert repr(session.record) == "<Record: nothing was reduced yet>"
    assert "not attached" in repr(session)
    assert "\n" not in repr(session)
