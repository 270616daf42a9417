"""The training loop and the networks it trains."""

import contextlib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from todo_core.hosts import detect
from todo_lab.pocket.model import config, networks, weights_file
from todo_lab.pocket.model.vocabulary import vocabulary
from todo_lab.pocket.training import diffusion
from todo_lab.pocket.training.diffusion import cell_weights, train_diffusion, write_weights
from todo_lab.pocket.training.judge import train_judge
from todo_lab.pocket.training.train import train_autoencoder, train_decoder
from todo_lab.pocket.training.training_loop import Loop, Muon, Options

SHIPPED = weights_file.shipped()


def _trained(folder, stop_at=None):
    torch.manual_seed(3)
    network = nn.Linear(4, 1)

    def loss_of(step, rng):
        if step == stop_at:
            raise KeyboardInterrupt
        x = torch.from_numpy(rng.standard_normal((8, 4))).float()
        noise = torch.randn(8, 1)  # torch's own generator has to be as it was, too
        return (network(x) - x.sum(1, keepdim=True) - 0.1 * noise).square().mean()

    folder.mkdir(exist_ok=True)
    loop = Loop("line", network, Options(folder, steps=60, seed=1), rate=0.05)
    with contextlib.suppress(KeyboardInterrupt):
        loop.run(loss_of)
    return network


def test_a_resumed_run_equals_one_that_was_never_stopped(tmp_path):
    uninterrupted = _trained(tmp_path / "a")
    _trained(tmp_path / "b", stop_at=37)
    resumed = _trained(tmp_path / "b")
    assert torch.equal(uninterrupted.weight, resumed.weight)
    torch.manual_seed(3)
    assert (resumed.weight - 1).norm() < (nn.Linear(4, 1).weight - 1).norm(), "it learns the sum"


def test_fused_attention_equals_ldms():
    torch.manual_seed(0)
    slow = networks.LdmCrossAttention(32, context_dim=24, heads=4, dim_head=8)
    fast = networks.CrossAttention(32, context_dim=24, heads=4, dim_head=8)
    fast.load_state_dict(slow.state_dict())
    x, context = torch.randn(2, 30, 32), torch.randn(2, 7, 24)
    torch.testing.assert_close(fast(x, context), slow(x, context))


def test_minutes_end_the_training_of_all_calls_together(tmp_path):
    def loop():
        return Loop("line", nn.Linear(4, 1), Options(tmp_path, steps=10**9, minutes=0.001), rate=0.05)

    first = loop()
    first.run(lambda step, rng: first.network(torch.ones(1, 4)).square().mean())
    assert first.step > 0
    second = loop()
    assert second.step == first.step
    second.run(lambda step, rng: pytest.fail("the time was over"))
    assert second._rate_factor() == pytest.approx(0.02 * min(1, (second.step + 1) / 200))


@pytest.mark.parametrize("shape", [(12, 6, 5), (40, 5, 6)])
def test_steps_are_torchs(shape):
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.flatten(1).clone())
    optimizers = [
        Muon([ours], 0.01),
        torch.optim.Muon([theirs], lr=0.01, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(4):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.flatten(1).clone()
        for optimizer in optimizers:
            optimizer.step()
    moved = (theirs - start.flatten(1)).norm()
    assert moved > 0.1
    assert (ours.flatten(1) - theirs).norm() < 0.02 * moved  # torch's computes in bfloat16


def test_the_best_answer_where_noise_hides_the_objects_is_their_true_share():
    present = (torch.arange(1000) < 300).float().view(-1, 1, 1, 1)  # the object is there in 30 % of the scenes
    for kept, best in ((0.0, 0.3), (1.0, 0.3 * 5 / (0.3 * 5 + 0.7))):
        weights = cell_weights(present, torch.full((1000,), kept))
        assert ((weights * present).sum() / weights.sum()).item() == pytest.approx(best)  # of least weighted error


@pytest.mark.slow
def test_the_whole_training_runs(tmp_path):
    """Each stage for a step, then the weights of both layouts."""
    options = Options(tmp_path, steps=1, scenes=8, batch=2, device="cpu")
    train_autoencoder(options)
    model = train_diffusion(options)
    write_weights(options)
    main = tmp_path / "pocket.safetensors"
    written = weights_file.load(main)
    torch.testing.assert_close(written.unet.out[2].weight, model.unet.out[2].weight, atol=1e-3, rtol=1e-3)
    sdxl = replace(options, layout="sdxl", start=main)
    train_diffusion(sdxl)
    write_weights(sdxl)
    train_judge(replace(options, start=SHIPPED))
    assert len(load_file(tmp_path / "shape-judge.safetensors")) > 0
    alone = load_file(tmp_path / "pocket-sdxl.safetensors")
    assert all(key.startswith("model.diffusion_model.") for key in alone)
    assert weights_file.load(tmp_path / "pocket-sdxl.safetensors").unet_settings == config.UNET_SDXL


def test_the_sdxl_layout_is_sdxls():
    host = detect(networks.PocketModel(len(vocabulary().tokens), config.UNET_SDXL))
    levels = [[site.level for site in host.sites].count(level) for level in (1, 2, 3)]
    assert levels == [3, 24, 0]  # 1 block in 3 transformers at the latent's size, 6 in 4 one halving down
    assert host.trained_side == 16
    unet = networks.build_unet(config.UNET_SDXL)
    made = unet(torch.randn(2, 4, 16, 16), timesteps=torch.tensor([3, 5]), context=torch.randn(2, 77, 128))
    assert made.shape == (2, 4, 16, 16)
    assert sum(parameter.numel() for parameter in unet.parameters()) * 2 < 15_000_000


@pytest.mark.long
def test_the_decoder_alone_learns(tmp_path):
    shipped = weights_file.load().first_stage_model
    options = Options(tmp_path, steps=2, scenes=4, batch=2, start=SHIPPED, device="cpu")
    train_decoder(options)
    written = diffusion._model(options).first_stage_model
    for name, before in shipped.state_dict().items():
        learns = name.startswith(("decoder", "post_quant_conv"))
        assert written.state_dict()[name].equal(before) != learns, name
