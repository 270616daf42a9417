"""With which samplers whole steps are predicted."""

import pytest

from todo_core.samplers import adds_no_noise, alias_adds_no_noise


def sample_dpmpp_2m(model, x, sigmas): ...


def sample_euler(model, x, sigmas, s_churn=0.0): ...


def ddim(model, x, timesteps, eta=0.0): ...


def sample_euler_ancestral(model, x, sigmas, eta=1.0): ...


def sample_res_multistep(model, x, sigmas): ...


def sample_res_multistep_ancestral(model, x, sigmas, eta=1.0): ...


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
        (sample_res_multistep, None, None, True),
        (sample_res_multistep_ancestral, 1.0, None, False),
        (None, None, None, False),
        ("sample_euler", None, None, False),
    ],
)
def test_known_by_its_name_eta_and_churn(function, eta, churn, expected):
    assert adds_no_noise(function, eta=eta, churn=churn) is expected


@pytest.mark.parametrize(
    "alias", ["k_euler", "k_dpmpp_2m", "k_lms", "ddim", "plms", "unipc", "unipc_bh2", "euler_cfg_pp"]
)
def test_known_by_its_alias(alias):
    assert alias_adds_no_noise(alias)


@pytest.mark.parametrize("alias", ["k_euler_a", "k_dpmpp_2m_sde", "k_heun", "euler a", "", "sample"])
def test_unknown_by_its_alias(alias):
    assert not alias_adds_no_noise(alias)
