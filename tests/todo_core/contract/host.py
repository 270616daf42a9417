"""What a program offers, so that the cases of test_contract.py run on it: it makes a ``Job`` and tells ``Made``.

A host is made with pytest's ``request`` and has one method to write, ``make``. Jobs are plain data, and no case reaches
into the program: so a host may be a double in this process (``doubles.py``) or a real program that is asked through its
API. A real one says in ``lacks`` what of a job it cannot do, and why: a case that needs it is skipped there.

The checkpoint has SD 1's layout. The sampler adds no noise and calls the UNet once a step, with both halves of the
guidance as rows of one call, unless the job says otherwise. Equal jobs give equal images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from todo_core.patching.facts import HELD

Event = Literal[
    "cancel",  # the user has cancelled before this call: the program notices it in its own way
    "stop before",  # what ends the program comes up before the UNet's own code: a BaseException, or as it cancels
    "stop",  # the same inside a layer of the UNet
    "fail before",  # an error of the model or of another extension, before the UNet's own code
    "fail",  # the same inside a layer
    "ours",  # an error in todo_core.reduction
    "cached",  # another cache answers in the place of the call
    "cached inside",  # the same inside the call, in the place of the UNet's own code
    "prompt",  # from this call on, the prompt is another one; again: the first one
    "swap",  # from this call on, a model of another shape runs, as a refiner
]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One request. ``settings`` are those of ``Settings`` without ``passes``; with None there is no ToDo."""

    settings: Mapping[str, Any] | None = None
    kind: Literal["first", "hires", "img2img"] = "first"  # hires: a first pass and one of twice its width and height
    passes: Literal["first", "hires", "all"] = "all"
    steps: int = 8  # of each pass
    seeds: tuple[int, ...] = (1,)  # of the images of one batch
    sampler: Literal["euler", "heun", "ancestral"] = "euler"
    split: bool = False  # both halves of the guidance in calls of their own
    # another extension's forward on the UNet, its counter of a layer's calls, or a ControlNet
    beside: Literal["", "forward", "counter", "controlnet"] = ""
    again: int = 0  # the seed with which the user makes this job again after a stop, in Python with the same patch
    events: Mapping[int, Event] = field(default_factory=dict)  # by the number of the UNet's call in this job, from 0

    @property
    def needs(self) -> set[str]:
        """What a program must be able to do."""
        asked = {self.kind, self.sampler, self.beside, *self.events.values()}
        return asked | {need for need, is_asked in (("split", self.split), ("batch", self.seeds[1:])) if is_asked}


SEEN = ("time", "tokens", "keys", "deep", "hooks")


@dataclass
class Call:
    """A call of the UNet. A network that runs inside it, as a ControlNet, has none."""

    time: float  # calls of equal time belong to one step
    tokens: int = 0  # of the grid at level 1, the highest resolution; 0 if the UNet's own code did not run
    keys: int = 0  # of a self-attention there
    deep: bool = False  # whether a transformer below level 1 ran
    hooks: int = 0  # of ours, on the model as the call begins

    @property
    def ran(self) -> bool:
        """Whether the UNet's own code ran, at least to its first layer."""
        return bool(self.keys)

    @property
    def part(self) -> float:
        """How many tokens for each key: 1 if they are not reduced, 0 if the UNet's own code did not run."""
        return self.tokens / self.keys if self.keys else 0


@dataclass
class Made:
    """What a job gave."""

    images: list[Any]  # tensors or arrays, one for each seed; none where the program gives none
    calls: list[Call]
    line: str  # all that ToDo tells the user
    params: Mapping[str, str] | None = None  # of the infotext; None if the program writes none
    error: str = ""  # how the program says that it failed
    left: int = 0  # hooks, forwards and patches that are on a model and were not before
    remembered: int = 0  # tensors of a call that are still in memory
    inside: list[int] = field(default_factory=list)  # keys of the ControlNet at level 1, call by call

    @property
    def parts(self) -> list[float]:
        """``part`` of each call."""
        return [call.part for call in self.calls]

    @property
    def deep(self) -> list[int]:
        """The numbers of the calls in which a deep transformer ran."""
        return [number for number, call in enumerate(self.calls) if call.deep]

    @property
    def seen(self) -> tuple[int, int]:
        """In how many steps tokens were reduced, and below level 1 nothing was computed."""
        ran = [call for call in self.calls if call.ran]
        reduced = {call.time for call in ran if call.part > 1}
        return len(reduced), len({call.time for call in ran} - {call.time for call in ran if call.deep})

    @property
    def told(self) -> tuple[int, int]:
        """The same, as the line has it; in calls where some step has calls of both kinds."""

        def count(words: str) -> int:
            found = re.search(words, self.line)
            return int(found[1]) if found else 0

        steps, skipped = count(r"computed in \d+ of (\d+)"), count(r"the model was not called in (\d+)")
        computed = count(r"computed in (\d+) of") + skipped
        return count(r"level 1 [^;]* in (\d+) "), steps - computed if steps else count(r"predicted in (\d+) ")


class Host:
    """A program. What differs between programs stands here, each time as the usual answer."""

    lacks: Mapping[str, str] = {}  # what it cannot do of ``Job.needs``: why, in words
    # why whole steps are not predicted, as todo_core says it: beside another forward, and at all
    not_whole: Mapping[str, str] = {held: str(HELD[held]) for held in ("forward", "counter")}
    # whether auto finds a good part of the model's work below level 1; None: unknown
    has_deep_work: bool | None = False
    tells_cancels = True  # the line ends with "interrupted"
    survives_a_stop = False  # "stop" gives an image and a line
    tells_after_errors = False  # the line is there although the model has failed
    counts_steps = False  # the line has what was predicted where others have what ran, and no reasons: it is a record
    waits_with: int | None = 0  # hooks of ours in a call outside of the window; None: as many as inside
    keeps_its_patch = False  # between jobs; the host itself makes the job again then
    raises_our_errors = False  # instead of an image without reduction: the user's own program decides

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request

    def make(self, job: Job) -> Made:
        """Make the images of one job. Raises nothing that the program shows to its user."""
        raise NotImplementedError

    def run(self, settings: Mapping[str, Any] | None = None, **job: Any) -> Made:
        """``make``, where the program can. Whatever has happened, nothing of ours is left."""
        asked = Job(settings=settings, **job)
        for need in asked.needs & self.lacks.keys():
            pytest.skip(f"{type(self).__name__} {self.lacks[need]}")
        made = self.make(asked)
        if asked.again and not self.keeps_its_patch:
            made = self.make(replace(asked, events={}, seeds=(asked.again,)))
        assert made.left == 0, "hooks, forwards or patches are left on a model"
        assert made.remembered == 0, "tensors are remembered after the pass"
        return made
