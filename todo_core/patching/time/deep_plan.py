"""What is predicted between steps, and in which steps it is computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from ..space.level_plan import Reason
from . import pacing

Kind = Literal["deep", "whole"]
COMPUTED_FIRST: dict[Kind, int] = {"deep": 2, "whole": 3}  # steps of a pass; its last one is computed too
WHAT: dict[Kind, str] = {"deep": "layers below level 1", "whole": "whole steps"}


@dataclass(frozen=True)
class DeepPlan:
    """What is predicted between steps: the deep transformers, those below level 1, or the whole UNet.

    They run in every ``interval``-th step; with a ``tolerance``, in those that the measured error asks for, and
    ``interval`` is the longest gap (`pacing`). ``why`` says why they run in every step, ``note`` why whole
    steps are not predicted although the user has asked for them.
    """

    transformers: int
    interval: int = 1
    kind: Kind = "deep"
    tolerance: float | None = None
    why: Reason | None = None
    note: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether whole UNet calls are predicted."""
        return self.kind == "whole"

    @property
    def predicts(self) -> bool:
        """Whether they are predicted in some steps."""
        return self.why is None

    @property
    def computed_first(self) -> int:
        """How many steps at the start are computed."""
        return COMPUTED_FIRST[self.kind] if self.tolerance is None else pacing.COMPUTED_FIRST

    def computes(
        self, step: int, steps: int | None, computed: Sequence[int], gap: Callable[[], int] | None = None
    ) -> bool:
        """Whether they run in ``step`` of ``steps``, after these computed steps. The first ones and the last one do.

        ``gap`` tells the one that the last errors allow, where they decide.
        """
        if len(computed) < self.computed_first or (steps is not None and step + 1 >= steps):
            return True
        return step - computed[-1] >= (gap() if gap else self.interval)

    def computed_steps(self, steps: int, within: Collection[int]) -> list[int]:
        """The steps of a pass of so many in which they run. Only those ``within`` can be predicted."""
        computed: list[int] = []
        others: list[int] = []
        for step in range(steps):
            if not self.predicts or step not in within:
                others.append(step)
            elif self.computes(step, steps, computed):
                computed.append(step)
        return sorted(computed + others)

    def __str__(self) -> str:
        what = "whole model" if self.is_whole else f"below level 1: {self.transformers} transformers"
        how = f"computed in 1 of {self.interval} steps"
        if self.tolerance is not None:
            how = f"computed as the error asks, tolerance {self.tolerance:g}"
        return f"{what}, {f'not predicted: {self.why}' if self.why else how}"
