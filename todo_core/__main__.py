"""``python -m todo_core settings``: print the table of settings as Markdown. ``... evaluate``: measure them."""

from __future__ import annotations

import argparse
import logging
import sys

from . import settings_table
from .evaluation import command


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m todo_core", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("settings", help="print the table of settings as Markdown")
    command.add_arguments(
        commands.add_parser("evaluate", help="time and image difference", description=command.__doc__)
    )
    options = parser.parse_args(argv)
    if options.command == "evaluate":
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        options.given = (sys.argv[1:] if argv is None else argv)[1:]
        return command.run(options)
    sys.stdout.write(settings_table.markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
