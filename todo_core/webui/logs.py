"""How much the extension writes to the console."""

from __future__ import annotations

import logging

LEVELS = {
    "warnings and errors": logging.WARNING,
    "errors only": logging.ERROR,
    "each pass": logging.INFO,
    "everything": logging.DEBUG,
}
"""The choices of the settings page; the first is the default."""


class _Console(logging.StreamHandler):
    """Ours, so that Reload UI can tell that it is there."""


def set_level(name: str) -> None:
    """Write this much from now on.

    Without --loglevel the host sets up no handler, and Python's last resort shows warnings only: then we need our own.
    """
    logger = logging.getLogger("todo_core")
    logger.setLevel(LEVELS[name])
    ours = [handler for handler in logger.handlers if type(handler).__name__ == _Console.__name__]
    wanted = logger.level < logging.WARNING and not logging.getLogger().handlers
    for handler in ours if not wanted else ():
        logger.removeHandler(handler)
    if wanted and not ours:
        console = _Console()
        console.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(console)
