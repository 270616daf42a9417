"""Token reduction from a terminal."""

from __future__ import annotations

import argparse
import logging
import sys

from todo_core.settings import table

from .demo import options as demo
from .evaluation import command as evaluation

GENERATE = """Make one picture with a reduced hires pass: image.png, which carries how it was made, and figures.json
with the seconds of every step and what was reduced. `--set method=none` makes it unreduced."""
COMPARE = """Make the same picture with its hires pass whole and reduced: baseline.png, reduced.png, difference.png
(where they differ), and figures.json with times, speed, MSE, PSNR, SSIM and what was reduced. app.py does the same in
an environment of its own, and then serves a page."""


def parser() -> argparse.ArgumentParser:
    """All commands."""
    made = argparse.ArgumentParser(prog="python -m todo_lab", description=__doc__)
    commands = made.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, text in (("generate", GENERATE), ("compare", COMPARE)):
        demo.add(commands.add_parser(name, help=text.split(":")[0], description=text, epilog=demo.LEFT_OUT))
    evaluation.add_arguments(
        commands.add_parser(
            "evaluate",
            help="time and image difference over prompts, seeds and settings",
            description=evaluation.__doc__,
        )
    )
    commands.add_parser("settings", help="print the table of settings as Markdown")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(argv)
    if options.command == "settings":
        sys.stdout.write(table.markdown())
        return 0
    if options.command == "evaluate":
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        options.given = (sys.argv[1:] if argv is None else argv)[1:]
        return evaluation.run(options)
    from .demo import command  # diffusers and the rest are needed for these alone

    job = command.compare if options.command == "compare" else command.generate
    return command.at_desk(options, lambda desk: job(desk, options))


if __name__ == "__main__":
    raise SystemExit(main())
