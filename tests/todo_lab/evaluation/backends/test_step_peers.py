"""Adapters for methods that save work between steps: what runs in each step, on the pocket model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from todo_lab.evaluation.backends import peers
from todo_lab.evaluation.backends.local import Local, LocalScene
from todo_lab.evaluation.variants import BASELINE, from_peer
from todo_lab.pocket.model.pocket_model import Pocket
from todo_lab.sampling.request import Request

ASKED = Request(prompt="a red circle over stripes", seed=5, steps=2, hires_steps=6, width=64, height=64)
FORECASTER = """
import torch
DTYPE = torch.bfloat16
class ChebyshevForecaster:
    def __init__(self, M, K, lam):
        self.known = {}
class Spectrum:
    def __init__(self, forecaster, taylor_order, prefer, w):
        self.known = forecaster.known
    def update(self, step, features):
        assert DTYPE == torch.float32 and features.shape[0] == 1
        self.known[step] = features
    def predict(self, step):
        assert step not in self.known
        return self.known[max(self.known)]
"""


@pytest.fixture(scope="module")
def model() -> Pocket:
    return Pocket()


@pytest.fixture(scope="module")
def scene(model) -> LocalScene:
    return Local(model).prepare(ASKED)


@contextmanager
def counted(model: Pocket) -> Iterator[dict[str, list[int]]]:
    """The rows of each run of some parts of the UNet, by the part's name."""
    unet: Any = model.target.unet
    parts = {"first": unet.input_blocks[0], "second": unet.input_blocks[1], "middle": unet.middle_block}
    parts |= {"last": unet.output_blocks[-1], "out": unet.out}
    parts |= {"text": next(site for site in unet.modules() if hasattr(site, "attn2")).attn2.to_k}
    rows: dict[str, list[int]] = {name: [] for name in parts}
    hooks = [
        part.register_forward_hook(lambda _, args, __, name=name: rows[name].append(len(args[0])))
        for name, part in parts.items()
    ]
    try:
        yield rows
    finally:
        for hook in hooks:
            hook.remove()


def test_fewer_steps_changes_the_request_alone(model, scene):
    with counted(model) as rows:
        made = scene.generate(from_peer("fewer steps", {"share": 0.5}))
    assert rows["middle"] == [2, 2, 2]
    expected = Local(model).prepare(replace(ASKED, hires_steps=3)).generate(BASELINE)
    assert np.array_equal(made.image, expected.image)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("DeepCache", {"interval": 1}),
        ("FBCache", {"threshold": 0}),
        ("skipped uncond", {"start": 1.0}),
        ("T-GATE", {"gate": 1.0}),
        ("fewer steps", {"share": 1.0}),
        ("ZEUS", {"start": 1.0}),
        ("EasyCache", {"threshold": 0}),
    ],
)
def test_an_adapter_that_saves_nothing_changes_nothing(scene, name, options):
    assert np.array_equal(scene.generate(from_peer(name, options)).image, scene.generate(BASELINE).image)


def test_deepcache_runs_the_first_and_the_last_block_between_full_calls(model, scene):
    with counted(model) as rows:
        scene.generate(from_peer("DeepCache", {"interval": 3}))
    assert (rows["middle"], rows["second"]) == ([2, 2], [2, 2])
    assert rows["first"] == rows["last"] == rows["out"] == [2] * 6


def test_deepcache_keeps_the_input_of_the_last_block(model):
    unet: Any = model.target.unet
    x, times, text = torch.randn(2, 2, 4, 8, 8), torch.tensor([[700, 700], [600, 600]]), torch.randn(2, 77, 128)
    kept: list[torch.Tensor] = []
    with torch.inference_mode():
        hook = unet.output_blocks[-2].register_forward_hook(lambda _, __, output: kept.append(output))
        unet(x[0], timesteps=times[0], context=text)
        hook.remove()
        emb = unet.time_embed(_sinusoid(times[1], unet.model_channels))
        first = unet.input_blocks[0](x[1], emb, text)
        expected = unet.out(unet.output_blocks[-1](torch.cat([kept[0], first], 1), emb, text))
        with peers.applied("DeepCache", None, model.target, ASKED, '{"interval": 2}'):
            unet(x[0], timesteps=times[0], context=text)
            found = unet(x[1], timesteps=times[1], context=text)
    torch.testing.assert_close(found, expected)


def _sinusoid(times: torch.Tensor, width: int) -> torch.Tensor:
    """Vaswani et al. 2017, section 3.5, cosines first."""
    angles = times[:, None] * 10_000 ** (-torch.arange(width // 2) / (width // 2))
    return torch.cat([angles.cos(), angles.sin()], 1).float()


def test_fbcache_adds_the_kept_residual_while_the_first_block_adds_about_the_same(model, scene):
    with counted(model) as rows:
        scene.generate(from_peer("FBCache", {"threshold": 1e9}))
    assert rows["middle"] == [2]
    assert rows["first"] == rows["second"] == rows["out"] == [2] * 6


def test_skipped_uncond_leaves_one_row_in_every_second_step(model, scene):
    with counted(model) as rows:
        scene.generate(from_peer("skipped uncond", {"every": 2}))
        assert rows["middle"] == [2, 1, 2, 1, 2, 1]
        rows["middle"].clear()
        scene.generate(from_peer("skipped uncond", {"every": 2, "start": 0.5}))
        assert rows["middle"] == [2, 2, 2, 1, 2, 1]


def test_without_guidance_skipping_uncond_changes_nothing(model):
    scene = Local(model).prepare(replace(ASKED, guidance=1.0))
    made = scene.generate(from_peer("skipped uncond", {"every": 1})).image
    assert np.abs(made.astype(int) - scene.generate(BASELINE).image).max() <= 1


def test_t_gate_drops_uncond_and_cross_attention_after_the_gate(model, scene):
    with counted(model) as rows:
        made = scene.generate(from_peer("T-GATE", {"gate": 0.5}))
    assert rows["middle"] == [2, 2, 2, 1, 1, 1]
    assert rows["text"] == [2, 2, 2]
    assert (made.image != scene.generate(BASELINE).image).any()


@pytest.mark.parametrize(
    ("options", "full"),
    [
        ({"warmup": 6}, [0, 1, 2, 3, 4, 5]),
        ({"warmup": 2, "flex": 0}, [0, 1, 3, 5]),
        ({"warmup": 1, "flex": 1.0}, [0, 2, 5]),
    ],
)
def test_spectrum_forecasts_between_its_windows(model, tmp_path, options, full):
    file = tmp_path / "src" / "utils" / "basis_utils.py"
    file.parent.mkdir(parents=True)
    file.write_text(FORECASTER)
    scene = Local(model, {"Spectrum": Path(tmp_path)}).prepare(ASKED)
    with counted(model) as rows:
        scene.generate(from_peer("Spectrum", options))
    assert (rows["middle"], rows["out"]) == ([2] * len(full), [2] * 6)


def outputs_of(model: Pocket, name: str, inputs: list[torch.Tensor], options: str) -> tuple[list, list, int]:
    """The UNet's outputs for these inputs alone, those with the peer, and how many the peer has computed."""
    unet: Any = model.target.unet
    context, timesteps = model.context(["a red circle", ""]), torch.linspace(900, 100, len(inputs)).round()

    def call(number: int) -> torch.Tensor:
        return unet(inputs[number], timesteps=timesteps[number].expand(2), context=context)

    with torch.inference_mode():
        alone = [call(number) for number in range(len(inputs))]
        with (
            peers.applied(name, None, model.target, replace(ASKED, hires_steps=len(inputs)), options),
            counted(model) as rows,
        ):
            return alone, [call(number) for number in range(len(inputs))], len(rows["middle"])


def test_zeus_draws_a_line_and_then_repeats(model):
    torch.manual_seed(0)
    y, found, runs = outputs_of(model, "ZEUS", [torch.randn(2, 4, 8, 8) for _ in range(10)], "{}")
    expected = [*y[:4], 2 * y[3] - y[2], y[3], y[6], 2 * y[6] - y[3], y[6], y[9]]
    assert runs == 6
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(("threshold", "expected_runs"), [(0.05, 8), (1.5, 5), (4.0, 4)])
def test_easycache_follows_its_rule(model, threshold, expected_runs):
    """Written again, with the numbers of one step after the other. The steps below 95 % of the noise are computed."""
    torch.manual_seed(0)
    start = torch.randn(2, 4, 16, 16)
    inputs = [start + 0.1 * number * torch.randn(2, 4, 16, 16) for number in range(8)]
    y, found, runs = outputs_of(model, "EasyCache", inputs, f'{{"threshold": {threshold}, "start": 0.2, "end": 0.85}}')
    computed, rate, total = [0], 0.0, 0.0
    for step, done in enumerate((100, 214, 329, 443, 557, 671, 786, 900)):
        last = computed[-1]
        change = (inputs[step] - inputs[last])[0, :, ::8, ::8].abs().mean().item()
        if 200 <= done < 850 and rate:
            total += rate * change / y[last].abs().mean().item()
            if total < threshold:
                assert torch.allclose(found[step], inputs[step] + y[last] - inputs[last], atol=1e-5)
                continue
            total = 0.0
        assert torch.allclose(found[step], y[step], atol=1e-6)
        if 200 <= done < 850:
            rate = (y[step] - y[last])[0, :, ::8, ::8].abs().mean().item() / change
            computed.append(step)
    assert runs == expected_runs == len(computed) + 1  # and the last step, past the end
