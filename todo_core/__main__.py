"""``python -m todo_core settings``: print the table of settings as Markdown."""

from __future__ import annotations

import argparse
import sys

from . import settings_table


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m todo_core", description=__doc__)
    parser.add_subparsers(required=True).add_parser("settings", help="print the table of settings as Markdown")
    parser.parse_args(argv)
    sys.stdout.write(settings_table.markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
