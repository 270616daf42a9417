"""One variant of a comparison, and the images that the WebUI made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .table import MeasuredVariant


@dataclass
class Outcome:
    """One variant and its result."""

    variant: MeasuredVariant
    p: Any  # the processing object of this variant alone
    processed: Any = None
    images: list[Any] = field(default_factory=list)  # PIL, without the WebUI's own grid
    infotexts: list[str] = field(default_factory=list)


def comments_of(outcomes: Sequence[Outcome]) -> list[str]:
    """The comments of all variants, each once, after the names of its variants."""
    names_of: dict[str, list[str]] = {}
    for outcome in outcomes:
        for comment in outcome.p.comments:
            names_of.setdefault(comment.removeprefix("ToDo "), []).append(outcome.variant.name)
    return [f"{', '.join(names)}: {comment}" for comment, names in names_of.items()]
