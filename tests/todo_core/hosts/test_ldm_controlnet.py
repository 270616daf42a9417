"""A ControlNet, of ldm's layers as sd-webui-controlnet builds it or of diffusers, is found and reduced like a UNet."""

import pytest
import torch
from diffusers import ControlNetModel

from tests.controlnet_double import ControlNet
from tests.models import Small, diffusers_unet, ldm_unet, lengths, noise
from todo_core import UnsupportedModelError, apply_patch, remove_patch
from todo_core.hosts import detect, find_controlnet


def pairs_of(net, latent):
    """(queries, keys) of each attn1 in one call, in running order."""
    text = noise(len(latent), 7, 32)
    with lengths(Small(net, {}, 0)) as seen, torch.no_grad():
        if isinstance(net, ControlNetModel):
            net(latent, 500, text, noise(2, 3, *(2 * side for side in latent.shape[2:])))
        else:
            net(x=latent, hint=None, timesteps=torch.full((len(latent),), 500.0), context=text)
    return [pair for _, *pair in seen]


def test_it_has_the_levels_of_the_first_half_of_its_unet():
    unet = ldm_unet(num_res_blocks=2)
    found, whole = detect(ControlNet(unet)), detect(unet)
    assert (found.network, whole.network) == ("ControlNet", "UNet")
    middle = [site for site in whole.sites if site.transformer in set(unet.middle_block)]
    first_half = [site for site in whole.sites if site.rank < 2 and site.level <= 3]
    expected = sorted((site.level, site.rank) for site in (*first_half, *middle))
    assert sorted((site.level, site.rank) for site in found.sites) == expected
    assert found.depth == whole.depth == 0


@pytest.mark.parametrize(("text_width", "side"), [(768, 64), (1024, 64), (2048, 128)])
def test_its_trained_size_is_told_from_the_width_of_its_text(text_width, side):
    net = ControlNet(ldm_unet(channel_mult=[1, 2], context_dim=text_width))
    assert find_controlnet(net).trained_side == side


def of_ldm():
    return ControlNet(ldm_unet(channel_mult=[1, 2], attention_resolutions=[2, 1], num_res_blocks=1))


def of_diffusers():
    return ControlNetModel.from_unet(diffusers_unet(), conditioning_embedding_out_channels=(8, 16))


@pytest.mark.parametrize(
    ("build", "side", "tokens", "expected"),
    [
        (of_ldm, (16, 16), [256, 64, 64], [64, 16, 16]),
        (of_ldm, (9, 13), [117, 35, 35], [24, 6, 6]),
        (of_diffusers, (16, 16), [256, 64, 16, 4], [64, 16, 16, 4]),
    ],
)
def test_its_keys_are_reduced_at_levels_1_and_2_and_all_comes_off(build, side, tokens, expected):
    net, latent = build(), noise(2, 4, *side)
    session = apply_patch(net, factor_1=2, factor_2=2, phase="fixed")
    assert pairs_of(net, latent) == [[*pair] for pair in zip(tokens, expected, strict=True)]
    assert session.record.networks == {"ControlNet"}
    remove_patch(net)
    assert pairs_of(net, latent) == [[count] * 2 for count in tokens]


def test_only_a_controlnet_with_attention_is_found():
    without = ControlNet(ldm_unet(channel_mult=[1, 2], attention_resolutions=[]))
    without.middle_block = torch.nn.Sequential()
    assert find_controlnet(without) is None
    for other in (ldm_unet(), torch.nn.Linear(2, 2), None):
        assert find_controlnet(other) is None
    with pytest.raises(UnsupportedModelError, match="no spatial transformer in it has self-attention"):
        detect(without)
