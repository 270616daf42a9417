"""CLIP's whole tokenizer, made from the list of merges that the package open_clip_torch ships."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START, END = "<|startoftext|>", "<|endoftext|>"
SIZE = 49408  # tokens
LENGTH = 77  # tokens of a prompt, with the marks of begin and end
BYTES = 256
MERGES = SIZE - 2 * BYTES - 2  # how many merges of the file CLIP uses

Merge = tuple[str, str]


def merges_file() -> Path:
    """Where open_clip_torch keeps it, which is not imported. Raises FileNotFoundError without that package."""
    found = find_spec("open_clip")
    path = Path(found.origin).parent / "bpe_simple_vocab_16e6.txt.gz" if found and found.origin else None
    if path is None or not path.is_file():
        raise FileNotFoundError("CLIP's list of merges is missing; pip install --no-deps open_clip_torch brings it")
    return path


def read_merges(path: Path) -> list[Merge]:
    """CLIP's merges in order of rank."""
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()[1 : MERGES + 1]
    return [(first, second) for first, second in (line.split() for line in lines)]


def write_tokenizer(folder: Path) -> None:
    """A folder that transformers' `CLIPTokenizer` reads."""
    merges = read_merges(merges_file())
    letters = _letters()
    pieces = [*letters, *(letter + "</w>" for letter in letters), *map("".join, merges), START, END]
    marks = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "vocab.json", json.dumps({piece: number for number, piece in enumerate(pieces)}))
    _write(folder / "merges.txt", "\n".join(["#version: 0.2", *map(" ".join, merges)]))
    _write(folder / "special_tokens_map.json", json.dumps(marks))
    _write(folder / "tokenizer_config.json", json.dumps({**marks, "model_max_length": LENGTH}))


def clip_tokenizer(folder: Path) -> Any:
    """The tokenizer, by way of a folder to write it in."""
    from transformers import CLIPTokenizer

    write_tokenizer(folder)
    return CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)


def _letters() -> list[str]:
    """The character that stands for each byte, in the order of the first tokens: the printable ones come first."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (chr(256 + n) for n in range(256 - len(printable)))
    return [*map(chr, printable), *others]


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
