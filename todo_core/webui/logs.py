"""The log level of the extension."""

from __future__ import annotations

import logging

LEVELS = {
    "warnings and errors": logging.WARNING,
    "errors only": logging.ERROR,
    "each pass": logging.INFO,
    "everything": logging.DEBUG,
}
"""The choices of the settings page; the first is the default."""


class _ConsoleHandler(logging.StreamHandler):
    """A handler of its own class, so that it is found again after Reload UI."""


def set_level(name: str) -> None:
    """Use the level of this choice from now on.

    Without --loglevel the WebUI installs no log handler. Python's default then shows warnings and errors only, so lower
    levels need a handler of our own.
    """
    logger = logging.getLogger("todo_core")
    logger.setLevel(LEVELS[name])
    ours = [handler for handler in logger.handlers if type(handler).__name__ == _ConsoleHandler.__name__]
    needed = logger.level < logging.WARNING and not logging.getLogger().handlers
    for handler in ours if not needed else ():
        logger.removeHandler(handler)
    if needed and not ours:
        console = _ConsoleHandler()
        console.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(console)
