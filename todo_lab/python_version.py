"""The Pythons that this project runs on. Older ones, back to 2.7, can read this file."""

import platform
import sys

OLDEST, NEWEST = (3, 10), (3, 14)  # torch and the other pinned packages have wheels for these


def check_python():  # type: ignore[no-untyped-def]  # Python 2 has no annotations
    """Exit with one line if the packages have no wheels for this Python."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        sys.exit("Python " + oldest + " to " + newest + " is needed; this is " + platform.python_version() + ".")
