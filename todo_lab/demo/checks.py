"""The demo's options are checked before anything is installed, so this needs the standard library alone."""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError
from todo_core.settings import SETTINGS, Settings

from ..sampling.model_path import ModelError, check_name
from ..sampling.request import Request


def why_not(options: argparse.Namespace) -> str:
    """Why the demo cannot run with these options; empty if it can."""
    try:
        checked(options)
    except (SettingsError, ModelError, OSError) as error:
        return str(error)
    return ""


def checked(options: argparse.Namespace) -> tuple[Settings, dict[str, Any]]:
    """The settings, and the given fields of the request. Raises SettingsError, ModelError or OSError."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(Request)}
    given = {name: value for name, value in values.items() if value is not None}
    settings = parse_settings(options.preset, options.set)
    Request(**{"prompt": "", **given})
    if options.model:
        check_name(options.model)
    check_folder(options.out)
    check_port(options.port)
    return settings, given


def check_folder(folder: Path) -> None:
    """Raise OSError if nothing can be written into the folder, which may not be there yet."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"--out {folder}: {there} is a file, not a folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"--out {folder}: {there} cannot be written to.")


def check_port(port: int | None) -> None:
    """Raise OSError if the page cannot have the port. Without one it takes the first free one."""
    if port is None:
        return
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else the port of a page that just ended is taken
        try:
            tried.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", "a port is a number from 0 to 65535")
            raise OSError(f"--port {port} cannot be used: {reason}.") from None


def parse_settings(preset: str, changes: Sequence[str]) -> Settings:
    """A preset with changes of the form NAME=VALUE. Raises SettingsError."""
    values = Settings.preset(preset).to_dict()
    for change in changes:
        name, sign, value = change.partition("=")
        if not sign or name not in SETTINGS:
            raise SettingsError("set", change, "NAME=VALUE with one of these names: " + ", ".join(SETTINGS))
        values[name] = value
    return Settings.parse(values)
