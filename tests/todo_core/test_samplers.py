"""With which samplers whole steps are predicted."""

import pytest

from todo_core.samplers import adds_no_noise, alias_adds_no_noise


def sampler(name, parameters=""):
    made = {}
    exec(f"def {name}(model, x, sigmas{parameters}): ...", made)
    return made[name]


@pytest.mark.parametrize(
    ("function", "eta", "churn", "expected"),
    [
        (sampler("sample_dpmpp_2m"), None, None, True),
        (sampler("sample_dpmpp_2m"), 1.0, 0.0, True),  # the WebUI's Eta, which this sampler does not have
        (sampler("sample_euler", ", s_churn=0.0"), None, 0.0, True),
        (sampler("sample_euler", ", s_churn=0.0"), None, 5.0, False),
        (sampler("ddim", ", eta=0.0"), 0.0, None, True),
        (sampler("ddim", ", eta=0.0"), None, None, True),
        (sampler("ddim", ", eta=0.0"), 0.5, None, False),
        (sampler("sample_euler_ancestral", ", eta=1.0"), 1.0, None, False),
        (sampler("sample_dpmpp_2m_sde", ", eta=1.0"), 0.0, None, False),
        (sampler("sample_heun", ", s_churn=0.0"), None, 0.0, False),  # it calls the model twice a step
        (sampler("sample_res_multistep"), None, None, True),
        (sampler("sample_res_multistep_ancestral", ", eta=1.0"), 1.0, None, False),
        (None, None, None, False),
        ("sample_euler", None, None, False),
    ],
)
def test_known_by_its_name_eta_and_churn(function, eta, churn, expected):
    assert adds_no_noise(function, eta=eta, churn=churn) is expected


def test_known_by_its_alias():
    known = ["k_euler", "k_dpmpp_2m", "k_lms", "ddim", "plms", "unipc", "unipc_bh2", "euler_cfg_pp"]
    unknown = ["k_euler_a", "k_dpmpp_2m_sde", "k_heun", "euler a", "", "sample"]
    assert [alias for alias in known + unknown if alias_adds_no_noise(alias)] == known
