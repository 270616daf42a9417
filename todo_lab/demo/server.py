"""Serves the page on this machine, with a folder of its own for the pictures that gradio keeps."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from ..sampling.comparison import Comparison
from .model_runner import ModelRunner

log = logging.getLogger(__name__)


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
