"""What app.py does once everything is installed."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from ..command_line import USAGE_ERROR
from ..environment import INTERRUPTED
from ..sampling.comparison import Comparison
from ..sampling.request import Request
from . import files, results
from .checks import checked
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
        settings, given = checked(options)
        log.info("Loading %s.", options.model or "the pocket model")
        runner = ModelRunner(options.model)
        prompt = (PROMPTS if runner.is_pocket else OWN_PROMPTS)[0]
        request = Request(**{"prompt": prompt, **runner.defaults, **given})
        log.info("%s", results.title(request, runner.name))
        comparisons = runner.compare(request, settings, progress=ProgressText(sys.stdout))
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
