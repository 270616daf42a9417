"""What is known of a pass: facts alone, which the programs tell. What follows from them is decided in `planning`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..course import Course
from ..hosts.host import IMAGE_PIXELS
from ..reason import Reason
from ..token_grid import TokenGrid

Holder = Literal["forward", "counter", "ControlNet", "pipeline"]
# why whole UNet calls cannot be predicted where something else has hold of the model
HELD: dict[Holder, Reason] = {
    "forward": Reason.OTHER_FORWARD,
    "counter": Reason.COUNTER,
    "ControlNet": Reason.CONTROLNET,  # it will put a forward on the UNet
    "pipeline": Reason.PIPELINE,  # its UNet runs: too late for a forward
}


@dataclass(frozen=True)
class Pass:
    """A pass of the sampler over one latent."""

    size: TokenGrid  # of its latent
    steps: int | None = None  # None where nobody knows
    course: Course | None = None  # what its sampler has told; None where it has not
    is_asked: bool = False  # its sampler
    disagrees: bool = False  # the model is called otherwise than it has told
    holder: Holder | None = None  # what else has hold of the model
    is_video: bool = False
    alternates: bool = False  # the prompt changes in each step
    is_split: bool = False  # another model has a part of the prompts

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weights of the steps, where the course of the pass is known."""
        return self.course.weights if self.course else None

    @property
    def doubt(self) -> Reason | None:
        """Why its sampler has told nothing, or is not believed."""
        is_unknown = self.is_asked and not self.course
        return Reason.DISAGREES if self.disagrees else Reason.UNKNOWN if is_unknown else None

    @property
    def pixels(self) -> str:
        """The size of the image."""
        return f"{self.size.width * IMAGE_PIXELS} x {self.size.height * IMAGE_PIXELS}"
