"""What app.py does once everything is installed, and what ``generate`` and ``compare`` share with it."""

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

from ..command_line import USAGE_ERROR
from ..pocket.model.vocabulary import CaptionError
from ..sampling.checkpoints import ModelError
from ..sampling.request import Request
from . import results
from .model_runner import ModelRunner, OnProgress, OutOfMemory
from .options import PROMPT

log = logging.getLogger(__name__)

EXPECTED_ERRORS = (SettingsError, CaptionError, ModelError, OutOfMemory, OSError)
INTERRUPTED = 130  # the shell's exit status for Ctrl+C
Job = Callable[[ModelRunner, argparse.Namespace], None]


def run(options: argparse.Namespace) -> int:
    """Run app.py's job: a comparison, then the page unless ``--no-page`` was given."""
    return run_with_models(options, _compare_and_serve)


def run_with_models(options: argparse.Namespace, job: Job) -> int:
    """Run a job with the models of the options. An expected error is one line and exit status 2."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        job(ModelRunner(options.model), options)
    except EXPECTED_ERRORS as error:
        log.error("%s", error)
        return USAGE_ERROR
    except KeyboardInterrupt:
        log.info("Stopped.")
        return INTERRUPTED
    return 0


def _compare_and_serve(runner: ModelRunner, options: argparse.Namespace) -> None:
    compare(runner, options)
    if options.page:
        from . import page

        page.serve(runner, options.port)


def compare(runner: ModelRunner, options: argparse.Namespace) -> None:
    """Run one comparison, print its figures and write its files."""
    name, request, settings = _parse(runner, options)
    with _progress_bar() as progress:
        comparison = runner.compare(name, request, settings, progress=progress)
    _report(results.summary(comparison, name), results.write(options.out, comparison, name))


def generate(runner: ModelRunner, options: argparse.Namespace) -> None:
    """Make one picture, print its times and write its files."""
    name, request, settings = _parse(runner, options)
    with _progress_bar() as progress:
        generated = runner.generate(name, request, settings, progress=progress)
    _report(results.image_summary(generated, name), results.write_image(options.out, generated, name))


def _parse(runner: ModelRunner, options: argparse.Namespace) -> tuple[str, Request, Settings]:
    name = runner.names[1] if options.model else runner.names[0]
    request = parse_request(options, runner.request_defaults(name))
    return name, request, parse_settings(options.preset, options.set)


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    from tqdm import tqdm

    form = "{desc:<36} {percentage:3.0f} %|{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=form, leave=False, disable=None) as bar:

        def progress(fraction: float, text: str) -> None:
            bar.set_description_str(text)
            bar.update(fraction - bar.n)

        yield progress


def _report(summary: str, paths: list[Path]) -> None:
    log.info("%s", summary)
    for path in paths:
        log.info("written: %s", path)


def parse_request(options: argparse.Namespace, defaults: dict[str, Any]) -> Request:
    """The request of the given options; ``defaults`` of the model fill the rest. Raises SettingsError."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Request)}
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Request(**{"prompt": PROMPT, **defaults, **values})


def parse_settings(preset: str, changes: Sequence[str]) -> Settings:
    """A preset with changes of the form NAME=VALUE. Raises SettingsError."""
    if preset not in BUILT_IN:
        raise SettingsError("preset", preset, ", ".join(map(repr, BUILT_IN)))
    values = BUILT_IN[preset].to_dict()
    for change in changes:
        name, sign, value = change.partition("=")
        if not sign or name not in SETTINGS:
            raise SettingsError("set", change, "NAME=VALUE with one of these names: " + ", ".join(SETTINGS))
        values[name] = value
    return Settings.parse(values)
