"""Write the shipped set of pocket prompts: ``python -m todo_lab.evaluation.prompts.make_prompts``.

The set has 60 captions of scenes that were held out of training. Their length rises, and their number of nouns rises
as far as the grammar allows. The seeds are fixed, so the file is always the same.
"""

from __future__ import annotations

from pathlib import Path

from ...pocket.data.captions import caption
from ...pocket.data.dataset import unseen_scenes
from ..metrics.prompt_statistics import noun_count, word_count
from .prompt_sets import evenly_spaced

COUNT = 60
POOL = 2000
HEAD = "# 60 captions of held-out scenes, by rising number of words and nouns; made by make_prompts.py"


def pocket_prompts() -> list[str]:
    """The captions in order."""
    captions = dict.fromkeys(caption(scene) for scene in unseen_scenes(POOL))
    by_length: dict[int, list[str]] = {}
    for text in captions:
        by_length.setdefault(word_count(text), []).append(text)
    per_length = -(-COUNT // len(by_length))
    chosen = [text for length in sorted(by_length) for text in _rising(by_length[length])[:per_length]]
    return evenly_spaced(chosen, COUNT)


def _rising(texts: list[str]) -> list[str]:
    return sorted(texts, key=lambda text: (noun_count(text) or 0, text))[:: max(1, len(texts) // 8)]


def main() -> None:
    """Write the file."""
    path = Path(__file__).with_name("pocket.txt")
    path.write_text("\n".join([HEAD, *pocket_prompts()]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
