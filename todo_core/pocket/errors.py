"""What can be wrong with a request for a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .vocabulary import Vocabulary


class CaptionError(ValueError):
    """A caption that the pocket model cannot read; names the caption, the reason and the words that it knows."""

    def __init__(self, caption: str, why: str, vocabulary: Vocabulary):
        self.caption = caption
        known = ", ".join(sorted(vocabulary.words))
        super().__init__(f"The caption {caption!r} cannot be read: {why}. Words it knows: {known}.")
