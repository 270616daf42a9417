"""The laboratory in a terminal: evaluations, and the pocket model. app.py makes a comparison."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .command_line import Command, Group, run_commands

POCKET = {
    "check": Command("todo_lab.pocket.check", "measure what the pocket model can do", "evaluation"),
    "train": Command("todo_lab.pocket.training.train", "train the pocket model", "evaluation"),
    "export": Command("todo_lab.pocket.webui_export", "write the pocket model as a checkpoint of a WebUI", "demo"),
    "pictures": Command("todo_lab.pocket.documentation_pictures", "draw the sheet of docs/pocket.md", "evaluation"),
    "vocabulary": Command("todo_lab.pocket.training.make_vocabulary", "write the files of the vocabulary", "demo"),
}
COMMANDS: dict[str, Command | Group] = {
    "evaluate": Command(
        "todo_lab.evaluation.command", "measure time and image difference over many pictures", "evaluation"
    ),
    "settings": Command("todo_lab.settings_command", "print the table of settings as Markdown"),
    "pocket": Group(POCKET, "the small model that ships with this project"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m todo_lab", description=__doc__)
    return run_commands(parser, COMMANDS, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())
