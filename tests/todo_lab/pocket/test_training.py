"""The training loop and the networks it trains."""

from __future__ import annotations

import csv

import numpy as np
import torch
from torch import nn

from todo_core.hosts import detect
from todo_lab.pocket.model import networks, weights_file
from todo_lab.pocket.model.vocabulary import vocabulary
from todo_lab.pocket.training.training_loop import Loop


def _trained(folder, stop_at: int | None = None) -> nn.Linear:
    torch.manual_seed(3)
    network = nn.Linear(4, 1)

    def loss_of(step: int, rng: np.random.Generator) -> torch.Tensor:
        if step == stop_at:
            raise KeyboardInterrupt
        x = torch.from_numpy(rng.standard_normal((8, 4))).float()
        noise = torch.randn(8, 1)  # torch's own generator has to be as it was, too
        return (network(x) - x.sum(1, keepdim=True) - 0.1 * noise).square().mean()

    loop = Loop("line", network, folder, steps=60, rate=0.05, seed=1)
    try:
        loop.run(loss_of)
    except KeyboardInterrupt:
        loop._save()
    return network


def test_a_resumed_run_equals_one_that_was_never_stopped(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uninterrupted = _trained(tmp_path / "a")
    _trained(tmp_path / "b", stop_at=37)
    resumed = _trained(tmp_path / "b")
    assert torch.equal(uninterrupted.weight, resumed.weight)
    with (tmp_path / "a" / "line.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [20, 40, 60]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_fused_attention_equals_ldms():
    torch.manual_seed(0)
    slow = networks.LdmCrossAttention(32, context_dim=24, heads=4, dim_head=8)
    fast = networks.CrossAttention(32, context_dim=24, heads=4, dim_head=8)
    fast.load_state_dict(slow.state_dict())
    x, context = torch.randn(2, 30, 32), torch.randn(2, 7, 24)
    torch.testing.assert_close(fast(x, context), slow(x, context))


def test_the_model_is_one_that_can_be_reduced():
    host = detect(networks.PocketModel(len(vocabulary().tokens)))
    assert host.kind == "ldm"
    assert host.blocks(1) > 0
    assert host.blocks(2) > 0
    assert host.trained_side == 16


def test_saved_weights_have_the_names_of_a_checkpoint(tmp_path):
    torch.manual_seed(0)
    model = networks.PocketModel(len(vocabulary().tokens))
    model.scale_factor.fill_(0.25)
    weights_file.save(model, tmp_path / "w.safetensors")
    loaded = weights_file.load(tmp_path / "w.safetensors")
    for (name, before), after in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        torch.testing.assert_close(before, after, atol=2e-3, rtol=2e-3, msg=name)
    assert loaded.scale_factor == 0.25
    prefixes = {".".join(key.split(".")[:2]) for key in weights_file.named(model)}
    assert {"model.diffusion_model", "first_stage_model.encoder", "cond_stage_model.transformer"} <= prefixes
    assert weights_file.NESTED + "embeddings.token_embedding.weight" in weights_file.named(model)
