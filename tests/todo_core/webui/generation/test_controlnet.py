"""ControlNets of sd-webui-controlnet run inside the UNet's call and are reduced with it."""

from types import SimpleNamespace

import pytest
import torch

from tests.controlnet_double import ControlNet, script_with
from tests.models import LatentDiffusion, hook_count, shallow_ldm_unet
from tests.todo_core.webui.webui_double import Processing, WebUI
from todo_core import reduction

from .test_generation import OURS, lengths_of


def steered(model, net):
    """Let the UNet call a ControlNet first, as that extension's replacement of ``forward`` does."""
    unet = model.model.diffusion_model
    forward = unet.forward

    def with_controlnet(x, timesteps=None, context=None, **kwargs):
        net(x=x, hint=None, timesteps=timesteps, context=context)
        return forward(x, timesteps, context, **kwargs)

    unet.forward = with_controlnet


@pytest.fixture
def net():
    return ControlNet(shallow_ldm_unet(seed=3, num_res_blocks=1))


@pytest.fixture
def webui(script, net):
    model = LatentDiffusion(shallow_ldm_unet(), image_size=64)
    steered(model, net)
    return WebUI(script, model)


def beside(*models):
    return SimpleNamespace(alwayson_scripts=[SimpleNamespace(), script_with(*models)])


def generated(webui, net, scripts, settings=OURS, **changes):
    p = Processing(**changes)
    p.scripts = scripts
    with lengths_of(LatentDiffusion(net)) as pairs, lengths_of(webui.model) as of_unet:
        done = webui.generate(p, settings)
    assert hook_count(webui.model) == hook_count(net) == 0
    return done, pairs, of_unet


ANOTHER = ControlNet(shallow_ldm_unet(seed=4, num_res_blocks=1))  # it never runs


@pytest.mark.parametrize(
    ("units", "keys"), [(lambda net: [net, torch.nn.Conv2d(4, 4, 1), net, None], 64), (lambda net: [ANOTHER], 256)]
)
def test_what_runs_is_reduced_and_told_whatever_the_units_are(webui, net, units, keys):
    done, pairs, _ = generated(webui, net, beside(*units(net)))
    assert pairs[4:] == [(256, keys)] * 4
    assert ("ControlNet too" in done.comments) == ("ControlNet" in done.comments) == (keys == 64)


@pytest.mark.parametrize("scripts", [None, SimpleNamespace(alwayson_scripts=[SimpleNamespace(latest_network=None)])])
def test_without_one_only_the_unet_is_reduced(webui, net, scripts):
    _, pairs, of_unet = generated(webui, net, scripts)
    assert (pairs[-1], of_unet[-1]) == ((256, 256), (256, 64))


def test_an_error_in_it_ends_the_reduction_of_both(webui, net, monkeypatch):
    monkeypatch.setattr(reduction, "stride", lambda *args, **kwargs: 1 / 0)  # it is called for the ControlNet first
    done, pairs, of_unet = generated(webui, net, beside(net))
    assert pairs[4:] == of_unet[4:] == [(256, 256)] * 4
    assert "ToDo stopped in the hires pass: division by zero" in done.comments


def test_a_hires_checkpoint_of_another_shape_takes_it_along(webui, net):
    other = LatentDiffusion(shallow_ldm_unet(seed=5, num_res_blocks=1), image_size=64)
    steered(other, net)
    _, pairs, of_unet = generated(webui, net, beside(net), hr_model=other)
    assert of_unet == [(64, 64)] * 4
    assert pairs == [(64, 64)] * 4 + [(256, 64)] * 4
