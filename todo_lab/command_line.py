"""A command of a terminal is a module with ``run(options)``, which is imported only when the command is called."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

from .environment import INTERRUPTED

USAGE_ERROR = 2


def run_module(name: str, group: str, options_of: Callable[[Any], argparse.Namespace]) -> int:
    """Call ``run(options)`` of a module, which returns the exit status. ``group`` in pyproject.toml has its packages.

    A missing package and an OSError become one line and status 2.
    """
    try:
        module = _imported(name)
        return module.run(options_of(module))
    except ImportError as error:
        message = _missing_package(error, group)
    except OSError as error:
        message = str(error)
    sys.stderr.write(f"{message}\n")
    return USAGE_ERROR


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


def _missing_package(error: ImportError, group: str) -> str:
    """The pocket model's own message already says how to install ldm, which no group can name."""
    if (error.name or "").startswith("ldm"):
        return str(error)
    groups = f"{group} --group ray" if error.name == "ray" else group
    return f"{error}. This command needs, with pip 25.1 or newer: pip install --group {groups}"
