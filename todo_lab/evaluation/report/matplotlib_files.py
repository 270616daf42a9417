"""matplotlib without a window: how every chart starts and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DPI, COLOURS = 100, 64


def pyplot() -> Any:
    """matplotlib.pyplot with a backend that draws to files only."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def saved(chart: Any, path: Path) -> Path:
    """Write the chart and close it. The suffix of ``path`` names the format. Returns ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lossy = {"pil_kwargs": {"quality": 75, "method": 6}} if path.suffix == ".webp" else {}
    chart.savefig(path, dpi=DPI, **lossy)
    pyplot().close(chart)
    if path.suffix == ".png":  # lines and texts need few colours, and the file a third of its bytes
        from PIL import Image

        with Image.open(path) as image:
            image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
