"""The shipped model, unpacked and loaded once."""

import functools

import pytest


@pytest.fixture(scope="session", autouse=True)
def _shipped_weights_are_unpacked_once():
    """It takes a second each time."""
    from todo_lab.pocket.model import weights_file

    content = weights_file._content
    unpacked = functools.cache(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights_file, "_content", lambda p: (unpacked if p == weights_file.shipped() else content)(p))
        yield


@pytest.fixture(scope="session")
def shipped():
    from todo_lab.pocket.model.pocket_model import Pocket

    return Pocket()


@pytest.fixture
def pocket(shipped):
    """The shipped model. A test that leaves a hook on it fails."""
    yield shipped
    hooks = [h for m in shipped.target.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert not hooks, "a hook outlived its pass"
