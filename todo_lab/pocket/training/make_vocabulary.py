"""Write words.json and merges.txt of the weights folder: ``python -m todo_lab pocket vocabulary BPE_FILE``.

BPE_FILE is CLIP's list of merges, bpe_simple_vocab_16e6.txt.gz, from OpenAI's CLIP or open_clip. Only the merges for
the words of the captions are kept, in their order. Any CLIP tokenizer then splits these words as the full list does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ...sampling.clip_tokenizer import BYTES, Merge, read_merges
from ..data.captions import caption_words


def split(word: str, ranks: dict[Merge, int]) -> tuple[list[str], set[Merge]]:
    """The pieces of a word and the merges used. The lowest rank merges first (Sennrich et al. 2016)."""
    pieces, used = [*word[:-1], word[-1] + "</w>"], set()
    while pairs := [pair for pair in zip(pieces, pieces[1:], strict=False) if pair in ranks]:
        best = min(pairs, key=ranks.__getitem__)
        used.add(best)
        pieces = _merged(pieces, best)
    return pieces, used


def _merged(pieces: list[str], pair: Merge) -> list[str]:
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("merges", type=Path, metavar="BPE_FILE", help="CLIP's list of merges")


def run(options: argparse.Namespace) -> int:
    """Write both files."""
    merges = read_merges(options.merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids = {first + second: 2 * BYTES + rank for rank, (first, second) in enumerate(merges)}
    # ids 0-255 are single bytes, printable ASCII first; ids 256-511 are the same bytes at the end of a word
    ids |= {chr(c): c - 33 for c in range(33, 127)} | {chr(c) + "</w>": BYTES + c - 33 for c in range(33, 127)}
    found, used = {}, set()
    for word in sorted(caption_words()):
        pieces, needed = split(word, ranks)
        found[word] = [ids[piece] for piece in pieces]
        used |= needed
    folder = Path(__file__).parents[1] / "weights"
    rows = ",\n".join(f"{json.dumps(word)}: {json.dumps(tokens)}" for word, tokens in found.items())
    (folder / "words.json").write_text(f"{{\n{rows}\n}}\n", "utf-8")
    lines = [" ".join(pair) for pair in sorted(used, key=ranks.__getitem__)]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n", "utf-8")
    return 0
