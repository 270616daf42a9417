"""One variant of a comparison and what the WebUI made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .table import Variant


@dataclass
class Outcome:
    """One variant and what the host made of it."""

    variant: Variant
    p: Any  # the processing object of this variant alone
    processed: Any = None
    images: list[Any] = field(default_factory=list)  # PIL, without the host's own grid
    infotexts: list[str] = field(default_factory=list)


def comments_of(outcomes: Sequence[Outcome]) -> list[str]:
    """What the variants' own comments say, each once, with the names of those that say it."""
    said: dict[str, list[str]] = {}
    for outcome in outcomes:
        for comment in outcome.p.comments:
            said.setdefault(comment, []).append(outcome.variant.name)
    return [f"{', '.join(names)}: {comment}" for comment, names in said.items()]
