"""A backend without a model. Its images and times follow from the variant, so tests know the right results."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from todo_lab.evaluation.backends.local import TimedImage
from todo_lab.evaluation.backends.source import Source
from todo_lab.evaluation.metrics.image_metrics import ImageMetrics
from todo_lab.evaluation.running.engines import local_engine
from todo_lab.evaluation.running.jobs import Job, make_scenes
from todo_lab.evaluation.running.row_store import ROWS_FILE, RowStore
from todo_lab.evaluation.running.runner import run_jobs
from todo_lab.sampling.request import Request

ABOUT = {"runs": 1, "model": "none"}


def quick_metrics():
    """All metrics but ST-LPIPS, as without its package; its network takes longer than all the rest of a row."""
    metrics = ImageMetrics()
    metrics._st_lpips = None
    return metrics


def small_jobs(chosen, prompts, *, size=(64, 64), scales=(2.0,), changes=({},)):
    """The jobs of these variants in a few steps of small images."""
    base = Request(prompt="", steps=2, hires_steps=4)
    scenes = make_scenes(prompts, seeds=[5], sizes=[size], scales=scales, base=base, changes=changes)
    return [Job(scene, variant) for scene in scenes for variant in chosen]


def sweep(folder, work, double=None, *, resume=False, runs=1, about=ABOUT, **options):
    """Run the work on a double into a folder; returns the number of failed rows."""
    store = RowStore.of(folder, work, about, resume=resume)
    store.begin(about, len(work))
    return run_jobs(work, store, local_engine(double or Double(), runs=runs, metrics=quick_metrics()), **options)


def rows_of(folder):
    """The complete rows in a folder of results."""
    path = folder / ROWS_FILE
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def speed_of(variant):
    """The pretended speed relative to the baseline."""
    return 1 + _amount(variant)


def noise_of(variant):
    """Standard deviation, of 255, that it adds to the baseline."""
    return 10 * _amount(variant)


def _amount(variant):
    """A quarter of the factor, or the ratio."""
    settings = variant.settings
    factor = 2.0 if settings.factor_1 == "auto" else settings.factor_1
    return 0.0 if variant.is_baseline else factor / 4 if settings.method == "downsample" else settings.ratio_1


def differing(row, other):
    """The values in which two rows differ, other than times; sums may differ in their last digit."""
    timed = ("seconds", "speed", "peak")
    names = [name for name in {**row, **other} if not any(word in name for word in timed)]
    pairs = {name: (row.get(name, "missing"), other.get(name, "missing")) for name in names}
    return {name: pair for name, pair in pairs.items() if not _close(*pair)}


def _close(value, other):
    return value == (pytest.approx(other, rel=1e-9) if isinstance(other, float) else other)


@dataclass
class Double:
    """``slower(passes)`` is the slowness of the machine after so many passes. ``broken`` variants raise."""

    slower: Callable[[int], float] = lambda passes: 1.0
    broken: frozenset[str] = frozenset()
    unrepeatable: frozenset[str] = frozenset()  # variants whose images differ from run to run
    seconds: Callable[[int], list[float]] | None = None  # of each step of a reduced pass
    stop_at: int | None = None  # Ctrl+C at the image of this number
    passes: int = 0
    generated: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=lambda: {"model": "none"})

    def prepare(self, request):
        if "scene" in self.broken:
            raise RuntimeError("no scene today")
        return PreparedScene(self, request)


@dataclass
class PreparedScene:
    double: Double
    request: Request

    def generate(self, variant):
        self.warm_up(variant)
        if self.double.stop_at == len(self.double.generated):
            raise KeyboardInterrupt
        self.double.generated.append(variant.name)
        steps = self._steps(self.request.hires_steps, speed_of(variant))
        if self.double.seconds and not variant.is_baseline:
            steps = self.double.seconds(self.request.hires_steps)
        turn = self.double.passes if variant.name in self.double.unrepeatable else 0
        total = sum(steps)
        return TimedImage(self._image(variant, turn), steps, 1.0, total, 1.0 + total, f"a picture by {variant.name}")

    def time_baseline_steps(self):
        return self._steps(3, 1.0)

    def warm_up(self, variant):
        if variant.name in self.double.broken:
            raise RuntimeError(f"{variant.name} is broken")

    def _steps(self, count, speed):
        self.double.passes += 1
        return [0.1 * self.double.slower(self.double.passes) / speed] * count

    def _image(self, variant, turn):
        width, height = self.request.hires_size
        rng = np.random.default_rng([self.request.seed, len(self.request.prompt)])
        across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
        waves = np.sin(across * rng.uniform(5, 20)) * np.cos(down * rng.uniform(5, 20))
        base = 127 + 80 * np.stack([waves, across - 0.5, waves * down], -1)
        shake = np.random.default_rng(turn).normal(size=base.shape) * noise_of(variant) * (waves[..., None] > 0)
        return (base + shake * len(self.request.prompt) / 40).clip(0, 255).round().astype(np.uint8)


class DyingSource(Source):
    """Opens the double. The first worker creates the file ``weights`` and dies.

    It stands here, for a worker can import this module: those of tests have another name where the root is a package.
    """

    def open(self):
        if self.weights and not Path(self.weights).exists():
            Path(self.weights).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return Double()
