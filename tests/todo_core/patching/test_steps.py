"""The counter of steps by timestep, for models whose sampler nobody sees."""

from types import SimpleNamespace

import pytest
import torch

from tests.models import noise
from todo_core import patched
from todo_core.hosts.host import Sampler
from todo_core.patching.steps import StepCounter, rows_of, seeds_of_rows


class Listed(Sampler):
    """A sampler with this schedule; the next call belongs to its place ``index``, if it counts."""

    index = None

    def __init__(self, schedule):
        self._schedule = schedule

    def timesteps(self):
        return self._schedule

    def step_index(self):
        return self.index

    def repeats_timesteps(self):
        return self.index is None


def counter(schedule=None):
    return StepCounter(SimpleNamespace(sampler=Listed(schedule)))


def steps(counter, timesteps):
    return [counter.step_of(lambda t=t: float(t))[0] for t in timesteps]


def test_without_a_schedule_each_lower_timestep_is_a_step():
    assert steps(counter(), [900, 900, 700, 500, 500, 100, 900, 700]) == [0, 0, 1, 2, 2, 3, 0, 1]


@pytest.mark.parametrize("calls", [1, 2])
def test_inversion_goes_up_and_counts_from_its_second_step_on(calls):
    """The first rise could be a new pass; the second one cannot."""
    rising = [t for t in range(100, 900, 100) for _ in range(calls)]
    found = [step for step in range(8) for _ in range(calls)]
    assert steps(counter(), [900, 50, *rising]) == [0, 1, *found]
    assert steps(counter(), rising) == [0] * calls + [max(0, step - 1) for step in found[calls:]]


@pytest.mark.parametrize("kind", [torch.float32, torch.int64])
def test_a_timestep_in_bfloat16_finds_its_place_in_the_schedule(kind):
    schedule = torch.linspace(981, 1, 50).round().to(kind)
    given = schedule.bfloat16().tolist()
    assert counter(schedule).step_of(lambda: given[0]) == (0, 50)
    assert steps(counter(schedule), given) == list(range(50))


def of_a_gpu():
    raise AssertionError("the program waits for a GPU")


@pytest.mark.parametrize(("begin", "waits"), [(0, True), (0, False), (3, True), (2, False)])
def test_a_sampler_that_counts_tells_the_step_of_a_timestep_that_it_lists_twice(begin, waits):
    """As UniPC and Karras do, whose last timesteps round to one. img2img begins in the middle."""
    times = [900, 500, 20, 3, 3, 1]
    counting, sampler = counter(torch.tensor(times)), Listed(torch.tensor(times))
    counting._host.sampler, found = sampler, []
    for sampler.index in range(begin, 6):
        time = of_a_gpu if waits else lambda: float(times[sampler.index])
        found += [counting.step_of(time, waits=waits) for _ in range(2)]  # two calls a step
    assert found == [(step, 6 - begin) for step in range(6 - begin) for _ in range(2)]
    sampler.index = begin
    assert counting.step_of(time, waits=waits)[0] == 0
    assert counting.passes == 2


@pytest.mark.parametrize("index", [None, 5, 99, 0])
def test_a_count_that_is_not_of_this_call_is_not_believed(index):
    """An own loop, after a pipeline was interrupted."""
    counting = counter(torch.tensor([900, 500, 20, 3, 2, 1]))
    counting._host.sampler.index = index
    assert steps(counting, [500, 20]) == [0, 1]


def turns(first, second):
    return [t for pair in zip(first, second, strict=True) for t in pair]


DOWN = range(900, 0, -100)


@pytest.mark.parametrize("with_schedule", [True, False])
@pytest.mark.parametrize(
    ("passes", "takes_turns"),
    [
        ([[900, 800], turns([700, 600, 500, 400], [900, 800, 700, 600])], True),
        ([DOWN] * 4, False),
        ([DOWN, range(700, 0, -100), range(500, 0, -100), range(300, 0, -100)], False),  # weaker and weaker
        ([(900, 400)] * 5, False),
        ([(900,), (900,), (900,)], False),
    ],
)
def test_generations_that_take_turns_are_noticed_and_no_others(passes, takes_turns, with_schedule):
    counting = counter(torch.tensor(DOWN) if with_schedule else None)
    for timesteps in passes:
        steps(counting, timesteps)
    assert counting.takes_turns == takes_turns


def test_runs_that_come_back_take_turns_and_others_do_not():
    runs, found = {name: torch.tensor(DOWN) for name in "abc"}, []
    for order in ("aabbcc", "aabb", "abab"):
        counting = counter()
        for name in order:
            counting._host.sampler._schedule = runs[name]
            steps(counting, [900 - 100 * order.count(name)])
        found.append((counting.passes, counting.takes_turns))
    assert found == [(3, False), (2, False), (4, True)]


def test_a_session_tells_so_once(ldm_sd1):
    latent = noise(1, 4, 8, 8)
    with patched(ldm_sd1.unet, factor_1=2) as session:
        for t in [900, 800, *turns([700, 600, 500, 400], [900, 800, 700, 600])]:
            ldm_sd1(latent, float(t))
    assert [note for note in session.record.notes if "take turns" in note] == session.record.notes
    assert len(session.record.notes) == 1


def test_rows_of_different_timesteps_are_noted_once(ldm_sd1):
    with patched(ldm_sd1.unet, factor_1=2) as session, torch.no_grad():
        text = noise(2, 7, 32)
        for times in ([900.0, 900.0], [800.0, 200.0], [700.0, 100.0]):
            ldm_sd1.unet(noise(2, 4, 8, 8), torch.tensor(times), [text])
    assert len(session.record.notes) == 1
    assert "different timesteps" in session.record.notes[0]
    assert session.record.steps == {0, 1, 2}


@pytest.mark.parametrize(
    ("seeds", "rows", "each"),
    [
        ((4,), 3, [4, 4, 4]),
        ((4, 5), 2, [4, 5]),
        ((4, 5), 6, [4, 4, 4, 5, 5, 5]),
        ((4, 5, 6), 7, [4, 4, 5, 5, 6, 6, 6]),
        ((4, 5, 6), 2, [4, 5]),
    ],
)
def test_rows_of_one_image_have_its_seed(seeds, rows, each):
    assert seeds_of_rows(rows_of(seeds), rows) == each
