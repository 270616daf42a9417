"""matplotlib without a window: what all diagrams begin and end with."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def pyplot() -> Any:
    """matplotlib.pyplot, drawing to files alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def saved(chart: Any, path: Path) -> Path:
    """Write the chart and close it. Returns ``path``, whose suffix says as what."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lossy = {"pil_kwargs": {"quality": 90}} if path.suffix == ".webp" else {}
    chart.savefig(path, dpi=130, **lossy)
    pyplot().close(chart)
    return path
