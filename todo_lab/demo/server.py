"""Serves the page on this machine, with a folder of its own for the pictures that gradio keeps."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from ..environment import SIGNALLED
from ..sampling.comparison import Comparison
from .model_runner import ModelRunner

log = logging.getLogger(__name__)


def serve(runner: ModelRunner, opening: Sequence[Comparison], port: int | None = None) -> None:
    """Serve the page until it is interrupted or ended. Raises OSError if the port is taken."""
    os.environ.update(no_proxy="*", NO_PROXY="*")  # gradio calls the page's own address, and nothing else is called
    with _ends_in_order(), TemporaryDirectory(prefix="todo-demo-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder  # its own default is one folder for all users
        from . import page  # gradio looks at the folder when it is imported

        blocks = page.Page(runner, opening).blocks
        options: dict[str, Any] = {"theme": page.theme(), "css_paths": page.CSS, "show_error": True}
        _, address, _ = blocks.launch(server_port=port, quiet=True, prevent_thread_lock=True, **options)
        log.info("The page: %s (Ctrl+C ends it)", address)
        try:
            threading.Event().wait()
        finally:
            blocks.close(verbose=False)


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the program as Ctrl+C does, so that nothing is left behind."""
    signals = [
        getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
    ]  # Windows has no SIGHUP
    before = {each: signal.signal(each, lambda number, frame: sys.exit(SIGNALLED + number)) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
