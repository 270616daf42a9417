"""Each case runs on each program."""

import pytest

from tests.todo_core.webui.conftest import module, opts, script  # noqa: F401

from .doubles import HOSTS


@pytest.fixture(params=HOSTS, ids=lambda kind: kind.__name__)
def host(request):
    return request.param(request)
