"""Make one picture with a reduced hires pass: ``python -m todo_lab generate``.

Writes image.png, whose infotext says how it was made, and figures.json: the seconds of every step and the plan.
``--set method=none`` makes the baseline.
"""

from __future__ import annotations

import argparse

from . import command, options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that all commands of the demo share."""
    options.add_arguments(parser)
    parser.epilog = options.DEFAULTS


def run(arguments: argparse.Namespace) -> int:
    """Make the picture; returns the exit status."""
    return command.run_action(arguments, command.generate)
