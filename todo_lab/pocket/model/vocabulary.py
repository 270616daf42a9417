"""CLIP's tokens of the words in captions. The text encoder has embedding rows for these tokens only."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib import resources

import torch
from torch import Tensor

from ...sampling.clip_tokenizer import MAX_TOKENS

START, END = 49406, 49407  # CLIP's start and end token; the end token also pads


class CaptionError(ValueError):
    """The pocket model cannot read a caption. The message names the caption, the reason and the known words."""


class Vocabulary:
    """`words` maps each word to its CLIP tokens. `tokens` lists all tokens in the order of the embedding rows."""

    def __init__(self, words: dict[str, list[int]]):
        self.words = words
        self.tokens = sorted({token for tokens in words.values() for token in tokens} | {START, END})
        self._rows = {token: row for row, token in enumerate(self.tokens)}

    def encode(self, captions: list[str]) -> Tensor:
        """The embedding rows of each caption, (b, 77) int64. Raises CaptionError for unknown words."""
        return torch.tensor([self._encode(caption) for caption in captions])

    def _encode(self, caption: str) -> list[int]:
        words = re.findall(r"[^\W_]+", caption.lower())
        unknown = [word for word in words if word not in self.words]
        tokens = [token for word in words for token in self.words.get(word, ())]
        if unknown or len(tokens) > MAX_TOKENS - 2:
            why = f"it has {len(tokens)} tokens and at most {MAX_TOKENS - 2} fit"
            why = f"the pocket model never learned: {', '.join(unknown)}" if unknown else why
            known = ", ".join(sorted(self.words))
            raise CaptionError(f"The caption {caption!r} cannot be read: {why}. Known words: {known}.")
        padded = [START, *tokens] + [END] * (MAX_TOKENS - 1 - len(tokens))
        return [self._rows[token] for token in padded]


@lru_cache
def vocabulary() -> Vocabulary:
    """The shipped vocabulary."""
    text = resources.files("todo_lab.pocket").joinpath("weights/words.json").read_text(encoding="utf-8")
    return Vocabulary(json.loads(text))
