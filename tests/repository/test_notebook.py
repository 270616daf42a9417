"""docs/notebook.ipynb runs as it is and shows what it says."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TIMEOUT = 3600  # seconds per cell and per message; the whole notebook takes about 30 CPU seconds
NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"

nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
nbformat = pytest.importorskip("nbformat", reason="needs nbformat")


@pytest.fixture(scope="module")
def shown():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def executed(shown):
    """A fresh run. A cell that raises fails it."""
    limits = dict.fromkeys(("timeout", "startup_timeout", "iopub_timeout"), TIMEOUT)
    client = nbclient.NotebookClient(nbformat.from_dict(shown), kernel_name="python3", **limits)
    env = {**os.environ, "PYTHONPATH": str(NOTEBOOK.parents[1]), "OMP_NUM_THREADS": "1"}
    return client.execute(cwd=str(NOTEBOOK.parent), env=env)


def kinds(notebook):
    """The kinds of output of each code cell. The outputs themselves contain times, which differ."""
    return [sorted({kind_of(output) for output in cell.outputs}) for cell in notebook.cells if cell.cell_type == "code"]


def kind_of(output):
    return "picture" if "image/png" in output.get("data", {}) else output.output_type


def test_every_cell_gives_what_the_page_shows(shown, executed):
    assert [kind for cell in kinds(shown) for kind in cell].count("picture") == 3
    for shows, gives in zip(kinds(shown), kinds(executed), strict=True):
        assert set(shows) <= set(gives)  # a run may also print warnings
