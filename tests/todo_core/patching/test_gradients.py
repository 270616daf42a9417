"""Gradients through a reduced UNet: right without checkpointing, refused by name with it."""

import pytest
import torch
from ldm.modules.attention import BasicTransformerBlock
from ldm.modules.diffusionmodules.openaimodel import UNetModel

from tests.models import TEXT_WIDTH, double, hook_count, noise, shallow_diffusers_unet, shallow_ldm_unet, words
from todo_core import UnsupportedModelError, patched

REDUCED = {"factor_1": 2, "factor_2": 2}


def loss_of(unet, latent, text):
    timesteps = torch.full((len(latent),), 500.0)
    if isinstance(unet, UNetModel):
        return unet(latent, timesteps, context=text).square().mean()
    return unet(latent, timesteps, encoder_hidden_states=text).sample.square().mean()


@pytest.mark.parametrize("target", ["keys/values", "all"])
@pytest.mark.parametrize("method", ["downsample", "similarity", "cluster"])
def test_gradients_are_those_of_finite_differences(target, method, monkeypatch):
    """Also after a call in inference mode: nothing that is kept may be an inference tensor."""
    monkeypatch.setattr("ldm.modules.attention._ATTN_PRECISION", "as it comes")  # else float32
    unet = double(shallow_ldm_unet())
    latent, text = noise(1, 4, 8, 8).double().requires_grad_(), [words(1).double()]
    weight = unet.output_blocks[-1][1].transformer_blocks[0].attn1.to_k.weight.requires_grad_()
    with patched(unet, target=target, method=method, mlp=True, **REDUCED):
        with torch.inference_mode():
            loss_of(unet, latent, text)
        loss_of(unet, latent, text).backward()
        for leaf in (latent, weight):
            direction = noise(*leaf.shape, seed=4).double()
            with torch.no_grad():
                ends = []
                for sign in (1, -1):
                    leaf += sign * 1e-5 * direction
                    ends.append(loss_of(unet, latent, text))
                    leaf -= sign * 1e-5 * direction
            measured = (ends[0] - ends[1]) / 2e-5
            torch.testing.assert_close((leaf.grad * direction).sum(), measured, rtol=1e-5, atol=1e-12)


def checkpointed_ldm():
    unet = shallow_ldm_unet()
    for block in (module for module in unet.modules() if isinstance(module, BasicTransformerBlock)):
        block.checkpoint = True
    return unet


def checkpointed_diffusers():
    unet = shallow_diffusers_unet()
    unet.enable_gradient_checkpointing()
    return unet.train()


@pytest.mark.parametrize("what", ["latent", "text", "weights"])
@pytest.mark.parametrize("build", [checkpointed_ldm, checkpointed_diffusers])
def test_checkpointed_blocks_are_reduced_or_refused_where_a_backward_pass_may_follow(build, what):
    unet = build().requires_grad_(False)
    latent, text = noise(1, 4, 8, 8), noise(1, 7, TEXT_WIDTH)
    listed = [text] if isinstance(unet, UNetModel) else text  # ldm takes one for each block
    with patched(unet, **REDUCED) as session:
        loss_of(unet, latent, listed)  # nothing asks for gradients
        latent.requires_grad_(what == "latent")
        text.requires_grad_(what == "text")
        unet.requires_grad_(what == "weights")
        with pytest.raises(UnsupportedModelError, match="checkpointed"):
            loss_of(unet, latent, text)
        session.record.reset()
        with torch.no_grad():
            loss_of(unet, latent, listed)
    assert session.record.levels
    assert hook_count(unet) == 0
