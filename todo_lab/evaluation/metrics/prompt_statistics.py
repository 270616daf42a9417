"""Words and nouns of a prompt, for the question whether longer and richer prompts suffer more."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def words(prompt: str) -> int:
    """How many words it has: runs of letters, digits, apostrophes and hyphens."""
    return len(re.findall(r"\w[\w'’-]*", prompt))


@lru_cache(maxsize=4096)
def nouns(prompt: str) -> int | None:
    """How many of them TextBlob's rule-based English tagger takes for nouns; None where it is not installed.

    Its lexicon is part of the package (CLiPS pattern's), so nothing is downloaded. It errs now and then: "violet" in
    "a violet heart" counts as a noun.
    """
    try:
        from textblob.en import tag
    except ImportError:
        return None
    return sum(kind.startswith("NN") for _, kind in tag(prompt))
