"""The schedules are AUTOMATIC1111's: the numbers are those of its own functions, run at v1.10.1 on SD 1.5's noise."""

import numpy as np
import pytest

from todo_lab.sampling import AUTOMATIC, SAMPLERS, SCHEDULES, TRAILING, schedules

OF_TEN_STEPS = {
    "Karras": [14.6146, 9.10293, 5.4784, 3.16861, 1.74942, 0.914077, 0.446921, 0.2014, 0.0819111, 0.0291675, 0],
    "Exponential": [
        14.6146,
        7.32488,
        3.67124,
        1.84003,
        0.922227,
        0.462222,
        0.231666,
        0.116111,
        0.0581952,
        0.0291675,
        0,
    ],
    "SGM Uniform": [14.6146, 8.30717, 5.09241, 3.32507, 2.27973, 1.61558, 1.16286, 0.831884, 0.571189, 0.343705, 0],
    "Simple": [14.6146, 8.3028, 5.08776, 3.32108, 2.27646, 1.61289, 1.16058, 0.82986, 0.569285, 0.341674, 0],
    "Normal": [14.6146, 7.83988, 4.60917, 2.91831, 1.95016, 1.34493, 0.932358, 0.624977, 0.368658, 0.0291675, 0],
    "DDIM": [8.39069, 5.13443, 3.34776, 2.29285, 1.62369, 1.16822, 0.835653, 0.57405, 0.346187, 0.0413145, 0],
    "Beta": [14.6146, 13.9278, 12.491, 10.5976, 8.44244, 6.20137, 4.0462, 2.15283, 0.716024, 0.0291675, 0],
    "KL Optimal": [
        14.6146,
        4.56504,
        2.63289,
        1.78645,
        1.29477,
        0.961588,
        0.711627,
        0.50942,
        0.335638,
        0.178347,
        0.0291675,
    ],
    "Align Your Steps": [14.615, 6.11351, 3.56511, 2.39387, 1.64996, 1.13579, 0.742518, 0.445007, 0.169205, 0.029, 0],
}
ALIGNED_XL = [14.615, 5.9634, 3.33897, 1.85505, 1.10233, 0.674959, 0.431142, 0.260621, 0.122519, 0.029, 0]


@pytest.mark.parametrize("name", OF_TEN_STEPS)
def test_a_schedule_has_the_numbers_of_the_webui(name):
    assert schedules.SIGMAS[name](10) == pytest.approx(OF_TEN_STEPS[name], rel=1e-4)


def test_sdxl_has_aligned_steps_of_its_own():
    assert schedules.align_your_steps(10, is_xl=True) == pytest.approx(ALIGNED_XL, rel=1e-4)


def test_each_name_has_a_schedule_and_each_sampler_one_of_them():
    assert {*SCHEDULES} == {*schedules.SIGMAS, TRAILING}
    assert {*SAMPLERS.values()} <= {*schedules.SIGMAS}


def test_unipc_goes_evenly_through_the_timesteps_and_ends_at_the_least_noise():
    made = schedules.SIGMAS[AUTOMATIC](9)
    assert schedules.timesteps_of(made) == pytest.approx(np.linspace(999, 0, 10))
