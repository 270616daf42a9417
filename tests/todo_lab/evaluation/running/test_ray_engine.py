"""The Ray engine on a local cluster of two workers. One of them is killed."""

from pathlib import Path

import pytest

from tests.todo_lab.evaluation.doubles import ABOUT, Double, DyingSource, differing
from todo_lab.evaluation.metrics.image_metrics import ImageMetrics
from todo_lab.evaluation.running import engines
from todo_lab.evaluation.running.engines import local_engine
from todo_lab.evaluation.running.row_store import RowStore
from todo_lab.evaluation.running.runner import run_jobs


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    env = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[4])}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=env)
    yield
    ray.shutdown()


def rows(folder, work, engine):
    store = RowStore.of(folder, work, ABOUT, resume=False)
    store.begin(ABOUT, len(work))
    assert run_jobs(work, store, engine) == 0
    assert len(store.rows) == len(work)
    return {row["key"]: row for row in store.rows}


@pytest.mark.slow
def test_rows_equal_the_local_ones_though_a_worker_dies(tmp_path, work, cluster):
    local = rows(tmp_path / "local", work, local_engine(Double(), runs=2, metrics=ImageMetrics()))
    source = DyingSource(weights=str(tmp_path / "died"))
    spread = rows(tmp_path / "ray", work, engines.ray_engine(source, runs=2))
    assert (tmp_path / "died").exists()
    assert spread.keys() == local.keys()
    for key, row in spread.items():
        assert not differing(row, local[key])
        assert (tmp_path / "ray" / row["image"]).read_bytes() == (tmp_path / "local" / row["image"]).read_bytes()
