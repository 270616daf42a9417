"""From settings and a model to hooks: the plan of a pass, the session that carries it out, and the record of it."""

from .patch import apply_patch, patched, remove_patch
from .plan import LevelPlan, Plan
from .session import Session
from .token_grid import TokenGrid

__all__ = ["LevelPlan", "Plan", "Session", "TokenGrid", "apply_patch", "patched", "remove_patch"]
