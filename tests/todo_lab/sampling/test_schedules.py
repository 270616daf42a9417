"""The schedules are AUTOMATIC1111's: the numbers are those of its own functions, run at v1.10.1 on SD 1.5's noise."""

import numpy as np
import pytest

from todo_lab.sampling import AUTOMATIC, schedules

OF_TEN_STEPS = {  # every second sigma; each follows from the same formula
    "Karras": [14.615, 5.4784, 1.7494, 0.44692, 0.081911, 0],
    "Exponential": [14.615, 3.6712, 0.92223, 0.23167, 0.058195, 0],
    "SGM Uniform": [14.615, 5.0924, 2.2797, 1.1629, 0.57119, 0],
    "Simple": [14.615, 5.0878, 2.2765, 1.1606, 0.56929, 0],
    "Normal": [14.615, 4.6092, 1.9502, 0.93236, 0.36866, 0],
    "DDIM": [8.3907, 3.3478, 1.6237, 0.83565, 0.34619, 0],
    "Beta": [14.615, 12.491, 8.4424, 4.0462, 0.71602, 0],
    "KL Optimal": [14.615, 2.6329, 1.2948, 0.71163, 0.33564, 0.029167],
}
ALIGNED = [14.615, 6.1135, 3.5651, 2.3939, 1.65, 1.1358, 0.74252, 0.44501, 0.1692, 0.029, 0]
ALIGNED_XL = [14.615, 5.9634, 3.339, 1.855, 1.1023, 0.67496, 0.43114, 0.26062, 0.12252, 0.029, 0]


@pytest.mark.parametrize("name", OF_TEN_STEPS)
def test_a_schedule_has_the_numbers_of_the_webui(name):
    assert schedules.SIGMAS[name](10)[::2] == pytest.approx(OF_TEN_STEPS[name], rel=1e-4)


def test_sdxl_has_aligned_steps_of_its_own():
    assert schedules.SIGMAS["Align Your Steps"](10) == pytest.approx(ALIGNED, rel=1e-4)
    assert schedules.align_your_steps(10, is_xl=True) == pytest.approx(ALIGNED_XL, rel=1e-4)


def test_unipc_goes_evenly_through_the_timesteps_and_ends_at_the_least_noise():
    made = schedules.SIGMAS[AUTOMATIC](9)
    assert schedules.timesteps_of(made) == pytest.approx(np.linspace(999, 0, 10))
