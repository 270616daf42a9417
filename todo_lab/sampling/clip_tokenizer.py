"""CLIP's full tokenizer, built from the list of merges in the package open_clip_torch."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START, END = "<|startoftext|>", "<|endoftext|>"
OPEN_CLIP_PAD = "!"  # token 0; OpenAI's models fill a prompt up with END
VOCABULARY_SIZE = 49408
MAX_TOKENS = 77  # tokens of a prompt, start and end token included
BYTES = 256
MERGES = VOCABULARY_SIZE - 2 * BYTES - 2  # CLIP uses this many merges of the file

Merge = tuple[str, str]


def as_merges(text: str) -> list[Merge]:
    """The merges of a tokenizer's file, lowest rank first. Its first line is a head."""
    return [(first, second) for first, second in map(str.split, text.splitlines()[1:])]


def split(word: str, ranks: dict[Merge, int]) -> list[str]:
    """The pieces of a word. The lowest rank merges first (Sennrich et al. 2016)."""
    pieces = [*word[:-1], word[-1] + "</w>"]
    while pairs := [pair for pair in zip(pieces, pieces[1:], strict=False) if pair in ranks]:
        pieces = _merged(pieces, min(pairs, key=ranks.__getitem__))
    return pieces


def _merged(pieces: list[str], pair: Merge) -> list[str]:
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def write_files(folder: Path, ids: dict[str, int], merges: list[Merge], special: dict[str, str]) -> None:
    """Write the files of a tokenizer: the id of each piece, the merges, and the special tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {**special, "model_max_length": MAX_TOKENS, "tokenizer_class": "CLIPTokenizer"}
    for name, content in (("vocab", ids), ("special_tokens_map", special), ("tokenizer_config", options)):
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n", "utf-8")


def make_tokenizer(folder: Path, pad: str = END) -> Any:
    """Write the tokenizer's files into `folder` and load them. Raises FileNotFoundError without open_clip_torch.

    Prompts are filled up with the token ``pad``.
    """
    from transformers import CLIPTokenizer

    found = find_spec("open_clip")  # it is not imported
    path = Path(found.origin).parent / "bpe_simple_vocab_16e6.txt.gz" if found and found.origin else None
    if path is None or not path.is_file():
        raise FileNotFoundError("CLIP's list of merges is missing: pip install --no-deps open_clip_torch")
    merges = as_merges(gzip.decompress(path.read_bytes()).decode("utf-8"))[:MERGES]
    characters = _byte_characters()
    pieces = [*characters, *(character + "</w>" for character in characters), *map("".join, merges), START, END]
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": pad}
    write_files(folder, {piece: number for number, piece in enumerate(pieces)}, merges, special)
    return CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)


def _byte_characters() -> list[str]:
    """The character that represents each byte, in token order: printable bytes come first."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (chr(256 + n) for n in range(256 - len(printable)))
    return [*map(chr, printable), *others]
