"""The shipped model, loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from todo_lab.pocket.model.pocket_model import Pocket


@pytest.fixture(scope="session")
def shipped() -> Pocket:
    from todo_lab.pocket.model.pocket_model import Pocket

    return Pocket()


@pytest.fixture
def pocket(shipped: Pocket) -> Iterator[Pocket]:
    """The shipped model. A test that leaves a hook on it fails."""
    yield shipped
    hooks = [h for m in shipped.target.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert not hooks, "a hook outlived its pass"
