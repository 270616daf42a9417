"""What app.py does once it runs where everything is installed: the main job, then the page."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import SettingsError
from ..pocket.checkpoints import ModelError
from ..pocket.errors import CaptionError
from ..pocket.request import Request
from ..presets import BUILT_IN
from ..settings import SETTINGS, Settings
from . import output
from .desk import Desk, OutOfMemory

log = logging.getLogger(__name__)

REFUSALS = (SettingsError, CaptionError, ModelError, OutOfMemory, OSError)
PROMPT = "a big red heart over rolling hills"


def run(options: argparse.Namespace) -> int:
    """The exit status: 2 for what was asked for and cannot be, told in one line."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        desk = Desk(options.model)
        compare(desk, options)
        if options.page:
            from . import page

            page.serve(desk, options.port)
    except REFUSALS as error:
        log.error("%s", error)
        return 2
    except KeyboardInterrupt:
        log.info("Stopped.")
        return 130
    return 0


def compare(desk: Desk, options: argparse.Namespace) -> None:
    """The main job: one comparison, its figures printed and its files written."""
    from tqdm import tqdm

    name = desk.names[1] if options.model else desk.names[0]
    request, settings = wanted_request(options, desk.side(name)), wanted_settings(options.preset, options.set)
    form = "{desc:<36} {percentage:3.0f} %|{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=form, leave=False, disable=None) as bar:

        def progress(share: float, what: str) -> None:
            bar.set_description_str(what)
            bar.update(share - bar.n)

        pair = desk.compare(name, request, settings, progress=progress)
    log.info("%s", output.summary(pair, name))
    for path in output.write(options.out, pair, name):
        log.info("written: %s", path)


def wanted_request(options: argparse.Namespace, side: int) -> Request:
    """The request of the options that were given, at `side` pixels where none is. Raises SettingsError."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Request)}
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Request(**{"prompt": PROMPT, "width": side, "height": side, **values})


def wanted_settings(preset: str, changes: Sequence[str]) -> Settings:
    """A preset with changes of the form NAME=VALUE. Raises SettingsError."""
    if preset not in BUILT_IN:
        raise SettingsError("preset", preset, ", ".join(map(repr, BUILT_IN)))
    values = BUILT_IN[preset].to_dict()
    for change in changes:
        name, sign, value = change.partition("=")
        if not sign or name not in SETTINGS:
            raise SettingsError("set", change, "NAME=VALUE, with one of these names: " + ", ".join(SETTINGS))
        values[name] = value
    return Settings.parse(values)
