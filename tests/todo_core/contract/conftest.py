"""Each case runs on each program."""

import logging

import pytest

from tests.todo_core.webui.conftest import module, opts, script  # noqa: F401

from .doubles import HOSTS


@pytest.fixture(params=HOSTS, ids=lambda kind: kind.__name__)
def host(request, caplog):
    caplog.set_level(logging.CRITICAL, "todo_core")  # pytest would keep an error, and with it the frames and tensors
    return request.param(request)
