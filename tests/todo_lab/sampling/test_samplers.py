"""Each sampler with each schedule, on a model that knows the image: it can be right at the right noise alone."""

import pytest
import torch

from todo_lab.sampling import SAMPLERS, SCHEDULES, TRAILING
from todo_lab.sampling.request import OF_DDIM, Request
from todo_lab.sampling.samplers import make_scheduler
from todo_lab.sampling.schedules import karras, sigmas_of

OF = {sampler: OF_DDIM if sampler == "DDIM" else SCHEDULES for sampler in SAMPLERS}
IMAGE = torch.linspace(-1, 1, 64).reshape(1, 4, 4, 4)


def sampled(scheduler):
    """What becomes of an image with the noise of the first step."""
    torch.manual_seed(0)  # some draw noise in each step
    noise = torch.randn(IMAGE.shape)
    latent = scheduler.add_noise(IMAGE, noise, scheduler.timesteps[:1])
    for timestep in scheduler.timesteps:
        sigma = torch.tensor(sigmas_of(timestep.double().numpy())).float()
        scaled = scheduler.scale_model_input(latent, timestep)
        latent = scheduler.step((scaled * (1 + sigma**2).sqrt() - IMAGE) / sigma, timestep, latent).prev_sample
    return latent


@pytest.mark.parametrize(("sampler", "schedule"), [(sampler, each) for sampler in OF for each in OF[sampler]])
def test_a_sampler_finds_the_image(sampler, schedule):
    asked = Request(prompt="", sampler=sampler, schedule=schedule).resolved
    for steps, of in ((4, 4), (10, 20)):
        made = make_scheduler(asked.sampler, asked.schedule, steps, of)
        assert len(made.timesteps) == steps * made.order - (made.order == 2)
        # those that end above no noise leave 3 % of it
        assert sampled(made) == pytest.approx(IMAGE.numpy(), abs=0.1), (steps, of)


def test_a_hires_pass_takes_the_last_sigmas():
    assert make_scheduler("Euler", "Karras", 3, 6).sigmas.numpy() == pytest.approx(karras(6)[-4:])
    assert make_scheduler("DDIM", "DDIM", 3, 10).timesteps.tolist() == [201, 101, 1]
    assert make_scheduler("Heun", TRAILING, 2, 4).timesteps.tolist() == [499, 249, 249]


def test_the_sdxl_model_has_its_own_aligned_steps():
    made = [make_scheduler("Euler", "Align Your Steps", 10, 10, is_xl=is_xl).sigmas for is_xl in (False, True)]
    assert made[0][1] != made[1][1]
