"""The laboratory in a terminal: evaluations, and the pocket model. app.py makes a comparison."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from .command_line import run_module

PROGRAM = "python -m todo_lab"
# by its words: the module, the dependency group in pyproject.toml that it needs, and its help
COMMANDS = {
    "evaluate": (
        "todo_lab.evaluation.command", "evaluation", "measure time and image difference over many pictures"
    ),
    "pocket check": ("todo_lab.pocket.check", "evaluation", "measure what the pocket model can do"),
    "pocket train": ("todo_lab.pocket.training.train", "evaluation", "train the pocket model"),
    "pocket export": ("todo_lab.pocket.webui_export", "demo", "write the pocket model as a checkpoint of a WebUI"),
    "pocket pictures": ("todo_lab.pocket.documentation_pictures", "evaluation", "draw the sheet of docs/pocket.md"),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    for command, (module, group, _) in COMMANDS.items():
        names = command.split()
        if words[: len(names)] == names:
            return run_module(module, group, lambda imported: _parse(imported, names, words))  # noqa: B023
    listed = "\n".join(f"  {command:<18}{its_help}" for command, (*_, its_help) in COMMANDS.items())
    parser = _parser(PROGRAM, f"{__doc__}\n\ncommands:\n{listed}", usage="%(prog)s COMMAND [options]")
    parser.parse_known_args(words)  # --help
    return parser.error(f"name a command: {', '.join(COMMANDS)}")


def _parse(module: Any, names: list[str], words: list[str]) -> argparse.Namespace:
    parser = _parser(" ".join([PROGRAM, *names]), module.__doc__)
    module.add_arguments(parser)
    options = parser.parse_args(words[len(names) :])
    options.words = words
    return options


def _parser(program: str, text: str, **more: Any) -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=program, description=text, formatter_class=shape, **more)


if __name__ == "__main__":
    raise SystemExit(main())
