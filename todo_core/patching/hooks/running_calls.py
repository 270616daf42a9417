"""The UNet calls that are running, and what hooks share. Calls may nest, end without notice, run in several threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...hosts.host import Host, Site
from ...hosts.stack import find_frame
from ...reason import Why
from ...reduction import Reduction
from ...token_grid import TokenGrid
from ..plan import Plan
from ..record import Record
from ..space.level_plan import LevelPlan
from ..steps import Row, rows_inside
from ..time.memory import CallMemory
from ..time.prediction_plan import Part
from .module_calls import OnError


@dataclass
class BlockRun:
    """One run of a block. With target all, its modules share the reduction of the block's input."""

    input: Tensor | None = None
    reduction: Reduction | None = None  # of that input
    merged_by: Reduction | None = None  # what the output of the running module is unmerged by


@dataclass
class UNetCall:
    """What all hooks read during one UNet call. Without ``levels``, nothing is reduced."""

    frame: FrameType | None = None  # the function that runs as long as this call does
    # what is to happen: the session tells it when the call begins
    plan: Plan | None = None
    levels: dict[int, LevelPlan] = field(default_factory=dict)  # of the plan, in this step
    step: int = 0
    rows: tuple[Row, ...] = (Row(),)
    has_controlnet: bool = False  # that has run for it
    planned: tuple[Part, ...] = ()  # the plan has these predicted in some steps
    memory: CallMemory | None = None  # where they are run or predicted by it
    # where the call is
    grid: TokenGrid | None = None  # of the spatial transformer that is running
    site: Site | None = None  # the block that is running, for a host with patches
    block: BlockRun = field(default_factory=BlockRun)
    rows_done: dict[Module, int] = field(default_factory=dict)  # by blocks that see some of the rows at a time
    # what has happened
    has_run: bool = False  # the model's own code; another cache may have answered in its place
    predicted: set[Part] = field(default_factory=set)
    reduced: bool = False
    why_not: Why | None = None  # why a layer was not reduced, where no note says so

    @property
    def has_ended(self) -> bool:
        """Whether the call is over. Python refuses to clear the frame of a function that runs."""
        try:
            if self.frame:
                self.frame.clear()
        except RuntimeError:
            return False
        return self.frame is not None

    def stop(self) -> None:
        """Reduce nothing in the rest of the call."""
        self.levels, self.grid, self.memory = {}, None, None

    def next_rows(self, block: Module, count: int) -> tuple[Row, ...]:
        """The ``count`` rows that the block sees now: all, or the next ones where it runs row by row."""
        if count >= len(self.rows):
            return self.rows
        first = self.rows_done.get(block, 0)
        self.rows_done[block] = first + count
        return rows_inside(self.rows, count, first)


class RunningCalls:
    """The running calls of one UNet, a stack for each thread.

    No hook tells that a BaseException has ended a call. The frame of the call does: so calls that have ended are
    dropped whenever somebody looks.
    """

    def __init__(self) -> None:
        self._stacks: dict[int, list[UNetCall]] = {}

    @property
    def current(self) -> UNetCall | None:
        """The innermost running call of this thread."""
        stack = self._stacks.get(get_ident())
        while stack and stack[-1].has_ended:
            stack.pop()
        return stack[-1] if stack else None

    @property
    def are_of_several_threads(self) -> bool:
        """Whether calls of other threads run at the moment."""
        return len(self._stacks) > 1

    def begin(self, unet: Module) -> tuple[UNetCall, UNetCall | None]:
        """A new call, and the call that it runs inside, if any. To be called by the hook of ``unet`` itself."""
        for thread, stack in list(self._stacks.items()):
            if all(call.has_ended for call in stack):  # an interrupted thread may be gone for good
                self._stacks.pop(thread, None)
        runs = find_frame(lambda each: each.f_code.co_name == "_call_impl" and each.f_locals.get("self") is unet)
        outer, call = self.current, UNetCall(runs)
        if outer and not outer.frame:  # nobody can tell whether it runs
            outer = None
        self._stacks[get_ident()] = [*self._stacks.get(get_ident(), []), call] if outer else [call]
        return call, outer

    def end(self) -> UNetCall | None:
        """End the innermost call and return it."""
        call, stack = self.current, self._stacks.get(get_ident(), [])
        if len(stack) > 1:
            stack.pop()
        else:
            self._stacks.pop(get_ident(), None)
        return call

    def clear(self) -> None:
        """Forget all calls."""
        self._stacks.clear()

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the UNet runs no call."""
        return {"_stacks": {}}


@dataclass(frozen=True, eq=False)
class Shared:
    """What the hooks of a session share: the model, its running calls, and where notes and errors go."""

    host: Host
    record: Record
    on_error: OnError
    modules: tuple[str, ...] = ()  # of each block, that see fewer tokens; none where keys and values alone do
    calls: RunningCalls = field(default_factory=RunningCalls)
