"""A pytest plugin for ``tests/run.py --quick``: an answer within about ten seconds, in one process.

Long tests are left out. The others run once, then with their other cases, as long as there is time; properties are
tried with a twentieth of their examples. Python keeps its garbage and does not tidy up at its end: that would take two
seconds more after the import of diffusers.
"""

import atexit
import gc
import os
from contextlib import suppress

import pytest

SECONDS = 7.5  # of this process and its children on the CPU; after them, each test is skipped


def pytest_configure():
    gc.disable()
    with suppress(ImportError):  # the demo's environment has no hypothesis
        from hypothesis import settings

        settings.register_profile("quick", max_examples=5)  # see tests.naive.examples
        settings.load_profile("quick")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}.values()
    items[:] = sorted((item for item in items if item not in long), key=lambda item: item not in first)


def pytest_runtest_setup(item):
    if sum(os.times()[:4]) > SECONDS:
        pytest.skip("no time is left: name a file or a test")


def pytest_sessionfinish(session):
    def leave():
        session.config.get_terminal_writer().flush()
        atexit._run_exitfuncs()
        os._exit(session.exitstatus)

    session.config.add_cleanup(leave)
