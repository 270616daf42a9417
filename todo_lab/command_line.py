"""Commands of a terminal: each is a module that is imported only when its command is called."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NamedTuple

from .environment import INTERRUPTED

USAGE_ERROR = 2


class Command(NamedTuple):
    """A module with ``add_arguments(parser)`` and ``run(options)``, which returns the exit status.

    ``group`` names the dependency group in pyproject.toml that the module needs.
    """

    module: str
    help: str
    group: str = ""


class Group(NamedTuple):
    """Several commands under one name."""

    commands: Mapping[str, Command]
    help: str


def run_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command | Group], words: Sequence[str]) -> int:
    """Run the command that ``words`` name; returns the exit status."""
    try:
        chosen = _add_commands(parser, commands, words)
    except ImportError as error:
        return _fail(_missing_package(error, _find(commands, words).group))
    options = parser.parse_args(words)
    options.words = list(words)
    assert chosen  # parse_args exits without a command
    return run_module(chosen.module, options, chosen.group)


def run_module(module: str, options: argparse.Namespace, group: str) -> int:
    """Call ``run(options)`` of a module. A missing package and an OSError become one line and status 2."""
    try:
        return _imported(module).run(options)
    except ImportError as error:
        return _fail(_missing_package(error, group))
    except OSError as error:
        return _fail(str(error))


def _add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, Command | Group], words: Sequence[str]
) -> Command | None:
    """Add a parser for each command. Only the chosen one gets its arguments, so only its module is imported."""
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    chosen = None
    for name, command in commands.items():
        sub = parsers.add_parser(name, help=command.help, formatter_class=argparse.RawDescriptionHelpFormatter)
        if not words or words[0] != name:
            continue
        if isinstance(command, Group):
            sub.description = command.help
            chosen = _add_commands(sub, command.commands, words[1:])
        else:
            module = _imported(command.module)
            sub.description = module.__doc__
            module.add_arguments(sub)
            chosen = command
    return chosen


def _imported(name: str) -> Any:
    """Import a module. Ctrl+C ends the program at once: in numpy's import a KeyboardInterrupt becomes another error."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return import_module(name)
    signal.signal(signal.SIGINT, _stop)
    try:
        return import_module(name)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.stdout.write("Stopped.\n")
    sys.stdout.flush()
    os._exit(INTERRUPTED)


def _find(commands: Mapping[str, Command | Group], words: Sequence[str]) -> Command:
    command = commands[words[0]]
    return command if isinstance(command, Command) else _find(command.commands, words[1:])


def _missing_package(error: ImportError, group: str) -> str:
    """The pocket model's own message already says how to install ldm, which no group can name."""
    if not group or (error.name or "").startswith("ldm"):
        return str(error)
    groups = f"{group} --group ray" if error.name == "ray" else group
    return f"{error}. This command needs: pip install --group {groups}"


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return USAGE_ERROR
