"""Word and noun counts of a prompt. The report correlates them with the image difference."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def word_count(prompt: str) -> int:
    """Number of words: runs of letters, digits, apostrophes and hyphens."""
    return len(re.findall(r"\w[\w'’-]*", prompt))


@lru_cache(maxsize=4096)
def noun_count(prompt: str) -> int | None:
    """Number of nouns according to TextBlob's rule-based English tagger; None if it is not installed.

    The lexicon is part of the package, so nothing is downloaded. The tagger makes mistakes: "violet" in "a violet
    heart" counts as a noun.
    """
    try:
        from textblob.en import tag
    except ImportError:
        return None
    return sum(kind.startswith("NN") for _, kind in tag(prompt))
