"""What will happen in a pass, at each level and in each step, and why where nothing will."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..reason import Reason, Why
from ..settings import Settings
from .facts import Pass
from .space.level_plan import LevelPlan
from .time.prediction_plan import AUTO_FEWEST, Part, PredictionPlan

# Start and end are compared with step / steps up to this: 7 / 10 in floats must not be less than 0.7.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Plan:
    """What will happen in a pass: to ``levels`` from ``start`` to ``end``, shares of it, then to those of ``after``.

    ``whole`` UNet calls are predicted, and inside the calls that run the ``deep`` transformers, those below level 1.
    """

    settings: Settings
    facts: Pass
    levels: tuple[LevelPlan, ...]
    start: float
    end: float
    whole: PredictionPlan
    deep: PredictionPlan
    after: tuple[LevelPlan, ...] = ()
    advice: Why | None = None  # where nothing is reduced: the change of a setting that would help most

    @cached_property
    def parts(self) -> dict[Part, PredictionPlan]:
        """The two predictions by their names, the whole model first."""
        return {"whole": self.whole, "deep": self.deep}

    @property
    def predicts(self) -> bool:
        """Whether anything is predicted."""
        return self.whole.predicts or self.deep.predicts

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced, at any level and any time, or predicted."""
        return self.predicts or bool(self.reduced)

    @cached_property
    def reduced(self) -> tuple[LevelPlan, ...]:
        """The plans of levels that are reduced at any time of the pass."""
        return tuple(level for level in (*self.levels, *self.after) if level.reduces)

    @property
    def reasons(self) -> tuple[Why, ...]:
        """Why nothing is reduced; none where something is."""
        settings, whys = self.settings, [level.why for level in self.levels]
        is_off = settings.factor_1 == 1 if settings.method == "downsample" else settings.ratio_1 == 0
        if self.reduces:
            return ()
        if settings.method == "downsample" and settings.factor_1 == "auto":  # level 1 says what to do
            steps = self.facts.steps or AUTO_FEWEST
            is_short = settings.interval == "auto" and steps < AUTO_FEWEST and not self.facts.doubt
            of_steps = Reason.TOO_SHORT(AUTO_FEWEST, steps) if is_short else self.why_not_predicted
            whys = [whys[0], of_steps if settings.interval != 1 else None]
        elif settings.interval != 1:
            whys = [*(() if is_off else whys), self.why_not_predicted]
        return tuple(why for why in dict.fromkeys(whys) if why)

    @property
    def why_not_predicted(self) -> Why | None:
        """Why nothing is predicted. Whole steps are for any model, so theirs counts where they were tried."""
        if self.predicts:
            return None
        part, is_little = self.settings.predict, self.deep.why is Reason.TOO_LITTLE
        return self.whole.why if part == "whole" or (part == "auto" and is_little) else self.deep.why

    @property
    def note(self) -> Why | None:
        """What the line tells beside what is done: a prediction that was asked for by name is done in another way."""
        part, interval = self.settings.predict, self.settings.interval
        if self.facts.is_split and self.reduces:
            return Reason.UNPREDICTED(Reason.SPLIT)
        if interval == 1 or not self.reduces or self.whole.predicts or part == interval == "auto":
            return None
        if self.deep.predicts:
            return Reason.DEEP_INSTEAD(self.whole.why) if part == "whole" else None
        return Reason.UNPREDICTED(self.why_not_predicted)

    @property
    def why_all_tokens(self) -> Why | None:
        """Why *auto* keeps all tokens of level 1 although something else is done; None where it does not."""
        is_auto = self.settings.method == "downsample" and self.settings.factor_1 == "auto"
        return self.levels[0].why if is_auto and self.predicts and not self.reduced else None

    def at(self, progress: float) -> tuple[LevelPlan, ...]:
        """The levels that are reduced after this part of the pass, from 0 to 1."""
        is_past_end = self.end < 1 and progress >= self.end - _ROUNDING
        levels = self.after if is_past_end else self.levels if progress >= self.start - _ROUNDING else ()
        return tuple(level for level in levels if level.reduces)

    def __str__(self) -> str:
        lines = [str(level) for level in self.levels]
        lines += [f"past {self.end:g}: {level}" for level in self.after]
        lines += map(str, self.parts.values()) if self.settings.interval != 1 else ()
        return "\n".join(lines)
