"""What app.py does once everything is installed, and ``python -m todo_lab generate`` and ``compare``."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError
from todo_core.settings import SETTINGS, Settings
from todo_core.settings.presets import BUILT_IN

from ..pocket.model.vocabulary import CaptionError
from ..sampling.checkpoints import ModelError
from ..sampling.request import Request
from . import results
from .models import Desk, OnProgress, OutOfMemory
from .options import PROMPT

log = logging.getLogger(__name__)

REFUSALS = (SettingsError, CaptionError, ModelError, OutOfMemory, OSError)


def run(options: argparse.Namespace) -> int:
    """What app.py does: a comparison, then the page, if that was asked for."""

    def job(desk: Desk) -> None:
        compare(desk, options)
        if options.page:
            from . import page

            page.serve(desk, options.port)

    return at_desk(options, job)


def at_desk(options: argparse.Namespace, job: Callable[[Desk], None]) -> int:
    """Do a job with the options' models; the exit status, 2 for what cannot be, told in one line."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        job(Desk(options.model))
    except REFUSALS as error:
        log.error("%s", error)
        return 2
    except KeyboardInterrupt:
        log.info("Stopped.")
        return 130
    return 0


def compare(desk: Desk, options: argparse.Namespace) -> None:
    """One comparison, its figures printed and its files written."""
    name, request, settings = _wanted(desk, options)
    with _progress() as progress:
        pair = desk.compare(name, request, settings, progress=progress)
    _tell(results.summary(pair, name), results.write(options.out, pair, name))


def generate(desk: Desk, options: argparse.Namespace) -> None:
    """One picture, likewise."""
    name, request, settings = _wanted(desk, options)
    with _progress() as progress:
        made = desk.generate(name, request, settings, progress=progress)
    _tell(results.image_summary(made, name), results.write_image(options.out, made, name))


def _wanted(desk: Desk, options: argparse.Namespace) -> tuple[str, Request, Settings]:
    name = desk.names[1] if options.model else desk.names[0]
    return name, wanted_request(options, desk.at_home(name)), wanted_settings(options.preset, options.set)


@contextmanager
def _progress() -> Iterator[OnProgress]:
    from tqdm import tqdm

    form = "{desc:<36} {percentage:3.0f} %|{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=form, leave=False, disable=None) as bar:

        def progress(share: float, what: str) -> None:
            bar.set_description_str(what)
            bar.update(share - bar.n)

        yield progress


def _tell(summary: str, paths: list[Path]) -> None:
    log.info("%s", summary)
    for path in paths:
        log.info("written: %s", path)


def wanted_request(options: argparse.Namespace, at_home: dict[str, Any]) -> Request:
    """The request of the options that were given, and of the model's own where none is. Raises SettingsError."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Request)}
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Request(**{"prompt": PROMPT, **at_home, **values})


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
