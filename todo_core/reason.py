"""Why something is not done, as codes with their numbers. Their words stand here alone.

Plan, guard, memory and record hand codes on, and compare them. Only a report turns one into words, by ``str``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any, TypeAlias


class Words(Enum):
    """Codes whose values are their words, with ``{}`` for each number."""

    def __str__(self) -> str:
        return str(self.value)

    @property
    def code(self) -> Words:
        """Itself, as that of a code with numbers."""
        return self

    def __call__(self, *numbers: Any) -> Because:
        """The code with its numbers, which may be codes themselves; those of a tuple stand one after the other."""
        return Because(self, numbers)


@dataclass(frozen=True)
class Because:
    """A code with its numbers."""

    code: Words
    numbers: tuple[Any, ...]

    def __str__(self) -> str:
        shown = ("; ".join(map(str, each)) if isinstance(each, tuple) else each for each in self.numbers)
        return str(self.code).format(*shown)


@dataclass(frozen=True)
class Measured:
    """A number that the measured error decides anew in each batch, or several: lines are equal whatever it is."""

    numbers: tuple[float, ...] = field(compare=False)

    def __str__(self) -> str:
        return " to ".join(dict.fromkeys(f"{end(self.numbers):g}" for end in (min, max)))


def measured(*numbers: float) -> Measured:
    """One number, or those of several batches."""
    return Measured(numbers)


def merged(line: Any, other: Any) -> Any:
    """Two equal lines as one, which has the range of their measured numbers."""
    if isinstance(line, Measured):
        return measured(*line.numbers, *other.numbers)
    if isinstance(line, Because):
        return Because(line.code, merged(line.numbers, other.numbers))
    return tuple(map(merged, line, other)) if isinstance(line, tuple) else line


@unique
class Reason(Words):
    """A clause that says why something is not done. None in its place: it is done."""

    # what the user has chosen
    METHOD_NONE = "the method is none"
    HIRES_OFF = "hires fix is off"
    INTERVAL_1 = "the interval is 1"
    FACTOR_1 = "the factor of level {} is 1"
    RATIO_0 = "the ratio of level {} is 0"
    NO_TARGET = "target is all, but attn, crossattn and mlp are off"
    LAYERS_ALONE = "only layers are asked for"
    # tokens
    NO_ATTENTION = "this model has no attention at level {}"
    TRAINED_AT = "this model was trained at {0:g} x {0:g}"
    LEVEL_1_ALONE = "auto reduces only level 1 at this size"
    FEW_TOKENS = "auto keeps fewer than {} tokens"
    TOO_SMALL = "a grid of {} is too small to lose a token"
    FEWER_WOULD_SAVE = "fewer would save {:.0f} % of the pass at {}"
    # predictions that are not planned
    TOO_SHORT = "auto predicts nothing in fewer than {} steps, and the sampler makes {}"
    TOO_FEW_STEPS = "{} need {} or more steps, and the sampler makes {}"
    STEPS_UNKNOWN = "auto needs to know the number of steps"
    SCHEDULE_UNKNOWN = "auto needs to know the noise schedule"
    ALTERNATES = "the prompt changes in each step"
    SPLIT = "another model or GPU has a part of the guidance, which is neither reduced nor counted"
    TOO_LITTLE = "little of this model's work is below level 1"
    NOTHING_DEEP = "this model has no transformer below level 1"
    COMPILED = "auto predicts no deep transformers in a compiled model"
    FEWER_TOKENS = "fewer tokens save {:.0f} % of the pass at {}"
    WHOLE_INSTEAD = "whole steps are predicted"
    NOT_THE_UNET = "whole steps of the UNet are predicted"
    VIDEO = "whole steps of a video model cannot be predicted"
    OTHER_FORWARD = "another forward is on the model"
    COUNTER = "another program counts the calls of the model's layers"
    CONTROLNET = "ControlNet is on"
    PIPELINE = "whole steps of a diffusers pipeline cannot be predicted"
    DEEP_INSTEAD = "{}: layers below level 1 are predicted"
    UNPREDICTED = "{}: nothing is predicted"
    # what the sampler has told
    GROWS = "errors grow too much with this sampler and schedule. Those of DPM++ 2M Karras and Euler do not"
    UNKNOWN = "it is not known what this sampler does with the model's outputs"
    DISAGREES = "the model is not called with the noise that the sampler has told"
    # calls that may not be predicted
    REPLICAS = "replicas of this model run side by side"
    THREADS = "several threads run this model at a time"
    GRADIENTS = "a call asks for gradients"
    LISTENED = "something else listens to a layer below level 1"
    ATTENTION_READ = "something else replaces a self-attention, and may read it"
    NO_ROOM = "the interval needs {:,.0f} MiB, and the GPU has {:,.0f} MiB free"
    # predictions that begin anew: what must be as in the last call
    ROWS = "the number of rows changes"
    LEFT_OUT = "{} leaves out the negative prompt in some steps"
    SIZE = "the size changes"
    CONDITIONING = "the conditioning, such as the prompt, changes"
    IMAGE = "the image changes"
    OTHERS = "the arguments of the model change"
    SPOILT = "the model's output has NaN or infinity"
    # what was planned, and has not come about
    NO_STEP = "no step ran"
    OUTSIDE = "no step is between Start and End"
    NOT_CALLED = "its self-attention was not called"
    TOO_FEW = "too few steps ran in a row"
    ABOVE = "error {}, tolerance {:g}"
    CACHED = "another cache answers for the model in {} of {} {}"
    INTERRUPTED = "interrupted"
    IT_WAS_INTERRUPTED = "it was interrupted"
    NOTHING_PREDICTED = "nothing predicted: {}"
    BEGAN_ANEW = "predictions began anew: {}"
    NO_WHOLE_STEP = "no whole step predicted: {}"
    TOKENS_KEPT = "all tokens kept: {}"
    NOTHING_TO_REDUCE = "nothing to reduce at {}: {}"
    ADVISED = "{}. {}"
    SET = "Set {} to {}"
    NOTHING_REDUCED = "nothing was reduced at {}: {}"
    CALL_NOT_REDUCED = "a call that was to be reduced has reduced nothing: {}"
    BYPASSED = "its self-attention was not called. Something replaces, caches or compiles it"
    # layers that are left alone
    NOT_REDUCED = "a layer at level {} is not reduced: {}"
    MASK = "it has a mask"
    NO_GRID = "its keys are not whole grids of {:,} tokens"
    NO_INPUT_GRID = "its input is not a grid of {:,} tokens"
    OTHER_SOURCE = "its keys come from another source"
    OTHER_VALUES = "its values are not those of its keys"
    TILED_QUERIES = "its queries are split into tiles"
    REPLACED_FORWARD = "another extension has replaced its {}.forward"
    HYPERTILE = "HyperTile splits it into tiles"
    PERTURBED = "perturbed-attention guidance replaces it"
    FUSED = "its query, key and value projections are fused; call unfuse_qkv_projections() first"
    REPLACED = "another node replaces a self-attention: it is not reduced"
    # passes that nobody reduces
    BY_SCRIPT = "a script runs the sampler by itself"
    NO_PASS = "no pass ran"
    NO_FIRST = "the first pass did not run"
    NO_HIRES = "the hires pass did not run"
    # notes
    MERGING = "Token merging ({:g}) is on: ToDo skips the layers that it merges"
    RUNS_ALWAYS = "{} runs in every step: another {}.forward is on it"
    CONTROLNETS_TOO = "ControlNets run in predicted steps too"
    TAKES_TURNS = "several generations take turns on this model: their steps are counted as one's"
    SEEDS_SWAP = "replicas of this model run side by side: images may swap their seeds"
    MOST_CALLS = "of a step's calls, the first {} are predicted"
    IS_NAN = "the model's output is not a number (NaN)"
    SEVERAL_TIMES = "the rows of a call have different timesteps: the step of the first row counts for all"
    UNTRAINED_TIMES = "its timesteps are not 1,000 trained ones: Start and End cannot follow the noise"


Why: TypeAlias = Reason | Because
