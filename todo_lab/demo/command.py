"""What app.py does once everything is installed."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from todo_core.errors import SettingsError
from todo_core.settings import SETTINGS, Settings

from ..command_line import USAGE_ERROR
from ..environment import INTERRUPTED
from ..sampling import checkpoints
from ..sampling.comparison import Comparison
from ..sampling.request import Request
from . import files, results
from .model_runner import EXPECTED_ERRORS, ModelRunner
from .options import OWN_PROMPTS, PROMPTS
from .progress import ProgressText

log = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Make a comparison, then serve the page unless ``--no-page`` was given.

    The options are checked before the model is loaded. An expected error is one line and exit status 2.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        values = {field.name: getattr(options, field.name) for field in dataclasses.fields(Request)}
        given = {name: value for name, value in values.items() if value is not None}
        settings = parse_settings(options.preset, options.set)
        Request(**{"prompt": "", **given})  # invalid values are reported before a model is loaded
        check_folder(options.out)
        check_port(options.port)
        if options.model:
            checkpoints.check_path(options.model)
        log.info("Loading %s.", options.model or "the pocket model")
        runner = ModelRunner(options.model)
        prompt = (PROMPTS if runner.is_pocket else OWN_PROMPTS)[0]
        request = Request(**{"prompt": prompt, **runner.defaults, **given})
        log.info("%s", results.title(request, runner.name))
        with closing(ProgressText(sys.stdout)) as progress:
            comparisons = runner.compare(request, [settings, results.beside(settings)], progress=progress)
        log.info("%s", results.summary(comparisons, files.write(options.out, comparisons, runner.name)))
        if options.page:
            serve(runner, comparisons, options.port)
    except EXPECTED_ERRORS as error:
        log.error("%s", error)
        return USAGE_ERROR
    except KeyboardInterrupt:
        log.info("Stopped.")
        return INTERRUPTED
    return 0


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


def serve(runner: ModelRunner, opening: Sequence[Comparison], port: int | None = None) -> None:
    """Serve the page until it is interrupted or ended. Raises OSError if the port is taken."""
    os.environ.update(no_proxy="*", NO_PROXY="*")  # gradio calls the page's own address, and nothing else is called
    with TemporaryDirectory(prefix="todo-demo-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder  # its own default is one folder for all users
        from . import page  # gradio looks at the folder when it is imported

        blocks = page.Page(runner, opening).blocks
        look = {"theme": page.theme(), "css_paths": page.CSS}
        _, address, _ = blocks.launch(server_port=port, quiet=True, prevent_thread_lock=True, show_error=True, **look)
        log.info("The page: %s (Ctrl+C ends it)", address)
        try:
            threading.Event().wait()
        finally:
            blocks.close(verbose=False)
