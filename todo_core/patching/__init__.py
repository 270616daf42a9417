"""From settings and a model to hooks: the plan of a pass, the session that carries it out, and the record of it."""

from ..token_grid import TokenGrid
from .level_plan import LevelPlan
from .patch import apply_patch, patched, remove_patch
from .plan import Pass, Plan
from .session import Session

__all__ = ["LevelPlan", "Pass", "Plan", "Session", "TokenGrid", "apply_patch", "patched", "remove_patch"]
