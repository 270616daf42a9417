"""With which samplers whole steps are predicted."""

import pytest

from tests.todo_core.test_pacing import ALPHA_BARS
from todo_core.samplers import noise_gone, sampler_of, sampler_of_alias


def sampler(name, parameters="", schedule="sigmas"):
    """A function with the name and the parameters of a sampler."""
    made = {}
    exec(f"def {name}(model, x, {schedule}{parameters}): model(x)", made)
    return made[name]


@pytest.mark.parametrize(
    ("function", "eta", "churn", "expected"),
    [
        (sampler("sample_dpmpp_2m"), None, None, "steady"),
        (sampler("sample_dpmpp_2m"), 1.0, 0.0, "steady"),  # the WebUI's Eta, which this sampler does not have
        (sampler("sample_euler", ", s_churn=0.0"), None, 0.0, "steady"),
        (sampler("sample_euler", ", s_churn=0.0"), None, 5.0, "adds noise"),
        (sampler("ddim", ", eta=0.0"), 0.0, None, "steady"),
        (sampler("ddim", ", eta=0.0"), None, None, "steady"),
        (sampler("ddim", ", eta=0.0"), 0.5, None, "adds noise"),
        (sampler("sample_euler_ancestral", ", eta=1.0"), 1.0, None, "adds noise"),
        (sampler("sample_dpmpp_2m_sde", ", eta=1.0"), 0.0, None, "adds noise"),
        (sampler("sample_heun", ", s_churn=0.0"), None, 0.0, "calls twice"),
        (sampler("sample_res_multistep"), None, None, "steady"),
        (sampler("sample_res_multistep_ancestral", ", eta=1.0"), 1.0, None, "adds noise"),
        (None, None, None, "unknown"),
        ("sample_euler", None, None, "unknown"),
        (sampler("sample_dpmpp_2m"), None, 5.0, "steady"),  # it has no churn
        (sampler("ddim_cfgpp", ", eta=0.0"), 0.0, None, "steady"),
        (sampler("sample_dpm_2"), None, None, "calls twice"),
        (sampler("sample_dpm_fast"), None, None, "unknown"),
    ],
)
def test_known_by_its_name_eta_and_churn(function, eta, churn, expected):
    assert sampler_of(function, eta=eta, churn=churn) == expected


def test_known_by_its_alias():
    known = ["k_euler", "k_dpmpp_2m", "k_lms", "ddim", "plms", "unipc", "unipc_bh2", "euler_cfg_pp"]
    unknown = ["k_euler_a", "k_dpmpp_2m_sde", "k_heun", "euler a", "", "sample"]
    assert [alias for alias in known + unknown if sampler_of_alias(alias) == "steady"] == known


@pytest.mark.parametrize("timestep", [0, 1, 200, 500, 999])
def test_the_noise_of_a_timestep_is_that_of_the_trained_schedule(timestep):
    sigma = (1 / ALPHA_BARS[timestep] - 1) ** 0.5
    assert noise_gone(1.0001 * sigma) == pytest.approx(1 - (timestep + 1) / 1000)
    assert noise_gone(0.9999 * sigma) == pytest.approx(1 - timestep / 1000)
