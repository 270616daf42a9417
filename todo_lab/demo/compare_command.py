"""Make the same picture as baseline, reduced, and with ToMe: ``python -m todo_lab compare``.

Writes a PNG of each, named by its preset, with a map of its difference from the baseline; zoom.png (where they differ
most), overview.png and figures.json: times, speed, MSE, PSNR, SSIM and the plan. app.py does the same in an environment
of its own, then serves a page.
"""

from __future__ import annotations

import argparse

from . import command, options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that all commands of the demo share."""
    options.add_arguments(parser)
    parser.epilog = options.DEFAULTS


def run(arguments: argparse.Namespace) -> int:
    """Make the pictures; returns the exit status."""
    return command.run_action(arguments, command.compare)
