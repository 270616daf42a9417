"""Print the table of settings as Markdown: ``python -m todo_lab settings``. It needs torch alone."""

from __future__ import annotations

import argparse
import sys

from todo_core.settings import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def run(options: argparse.Namespace) -> int:
    """Write the table to standard output."""
    sys.stdout.write(table.markdown())
    return 0
