"""With which samplers and in which passes whole steps are predicted."""

from dataclasses import replace

import pytest

from todo_core import Settings, TokenGrid
from todo_core.hosts import detect
from todo_core.whole_steps import adds_no_noise, alias_adds_no_noise, for_pass


def sample_dpmpp_2m(model, x, sigmas): ...


def sample_euler(model, x, sigmas, s_churn=0.0): ...


def ddim(model, x, timesteps, eta=0.0): ...


def sample_euler_ancestral(model, x, sigmas, eta=1.0): ...


def sample_dpmpp_2m_sde(model, x, sigmas, eta=1.0): ...


def sample_heun(model, x, sigmas, s_churn=0.0):
    """It calls the model twice a step."""


@pytest.mark.parametrize(
    ("function", "eta", "churn", "expected"),
    [
        (sample_dpmpp_2m, None, None, True),
        (sample_dpmpp_2m, 1.0, 0.0, True),  # the WebUI's Eta, which this sampler does not have
        (sample_euler, None, 0.0, True),
        (sample_euler, None, 5.0, False),
        (ddim, 0.0, None, True),
        (ddim, None, None, True),
        (ddim, 0.5, None, False),
        (sample_euler_ancestral, 1.0, None, False),
        (sample_dpmpp_2m_sde, 0.0, None, False),
        (sample_heun, None, 0.0, False),
        (None, None, None, False),
        ("sample_euler", None, None, False),
    ],
)
def test_known_by_its_name_eta_and_churn(function, eta, churn, expected):
    assert adds_no_noise(function, eta=eta, churn=churn) is expected


@pytest.mark.parametrize("alias", ["k_euler", "k_dpmpp_2m", "k_lms", "ddim", "plms", "unipc", "deis", "ipndm"])
def test_known_by_its_alias(alias):
    assert alias_adds_no_noise(alias)


@pytest.mark.parametrize("alias", ["k_euler_a", "k_dpmpp_2m_sde", "k_heun", "euler a", "", "sample"])
def test_unknown_by_its_alias(alias):
    assert not alias_adds_no_noise(alias)


WHY_NOT = "the sampler adds noise"


@pytest.mark.parametrize(
    ("settings", "size", "steps", "why_not", "predict", "has_note"),
    [
        ({}, 128, 8, "", "whole", False),
        ({"interval": 4}, 128, 4, "", "whole", False),
        ({"interval": 4}, 128, 3, "", "deep", False),  # the first two and the last are computed
        ({"end": 0.7}, 128, 8, "", "whole", False),
        ({}, 128, 8, WHY_NOT, "deep", False),
        ({}, 128, 5, "", "deep", False),  # auto predicts nothing
        ({}, 64, 8, "", "deep", False),  # the trained size
        ({}, 160, 8, "", "whole", False),  # 2.5 times as large: factor 2
        ({}, 161, 15, "", "deep", False),  # factor 3, and interval 2
        ({}, 224, 16, "", "whole", False),  # factor 3, and interval 3
        ({"interval": 3}, 224, 8, "", "whole", False),
        ({}, 225, 30, "", "deep", False),  # factor 4
        ({"factor_1": 2}, 128, 8, "", "deep", False),
        ({"factor_2": 1}, 128, 8, "", "deep", False),
        ({"method": "similarity"}, 128, 8, "", "deep", False),
        ({"predict": "deep"}, 128, 8, "", "deep", False),
        ({"predict": "whole", "factor_1": 2}, 256, 8, "", "whole", False),
        ({"predict": "whole"}, 128, 8, WHY_NOT, "deep", True),
        ({"predict": "whole"}, 128, 5, WHY_NOT, "deep", False),
        ({"interval": 1}, 128, 8, "", "deep", False),
        ({"method": "none"}, 128, 8, "", "deep", False),
    ],
)
def test_what_a_pass_predicts(ldm_sd1, settings, size, steps, why_not, predict, has_note):
    host, settings = replace(detect(ldm_sd1.unet), trained_side=64), Settings(**settings)
    chosen, note = for_pass(settings, host, TokenGrid(size, size), steps, why_not)
    assert chosen == replace(settings, predict=predict)
    assert note == (f"{WHY_NOT}: layers below level 1 are predicted" if has_note else "")
