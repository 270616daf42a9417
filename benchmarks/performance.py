"""The tables of docs/performance.md, from the stored rows of speed.py; pages.py writes them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from todo_core.patching.plan import DeepPlan

STORED = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "speed.json"
SDXL, SD1 = (128, 192, 256), (64, 96, 128, 192, 256)  # sides of the latent
REDUCED = ("**ToDo 2**", "ToDo 4", "ToDo 2 and 2", "ToMe 0.5", "tomesd 0.5")
Row = dict[str, Any]
Table = list[list[str]]


def pixels(sides: Iterable[int], of: str = "") -> list[str]:
    return [f"{of}{8 * side} px" for side in sides]


def seconds(row: Row) -> str:
    return f"{row['seconds']:.{0 if row['seconds'] >= 100 else 1}f} s"


def milliseconds(row: Row) -> str:
    return f"{1000 * row['seconds']:.0f} ms"


def speed(row: Row | None) -> str:
    """The speed of a call. Empty where nothing was measured."""
    return f"{row['speed']:.2f}x" if row else ""


def share(row: Row) -> str:
    return f"{100 * row['attention'] / row['seconds']:.0f} %"


@functools.cache
def stored() -> list[Row]:
    """The rows that speed.py has measured."""
    return json.loads(STORED.read_text("utf-8"))


def rows(**same: Any) -> dict[tuple[str, int], Row]:
    """The stored rows with these values, by setting and side."""
    mine = [row for row in stored() if same.items() <= row.items() and "failed" not in row]
    return {(row["setting"], row["side"]): row for row in mine}


def on_gpu(part: str, layout: str) -> dict[tuple[str, int], Row]:
    return rows(part=part, layout=layout, kernel="flash", **({"steps": 10} if part == "passes" else {}))


def calls(layout: str, dtype: str = "bfloat16", kernel: str = "any") -> dict[tuple[str, int], Row]:
    """Those on a CPU."""
    return rows(part="calls", layout=layout, dtype=dtype, kernel=kernel, batch=1)


def of_calls(head: list[str], columns: list[dict[str, Row]], time: Callable[[Row], str], names: Sequence[str]) -> Table:
    """The baseline's time and share, and the speed of each setting."""
    found = [["", *head]]
    found.append(["unpatched", *(time(column["baseline"]) for column in columns)])
    found.append(["share of level-1 attention", *(share(column["baseline"]) for column in columns)])
    return found + [[name, *(speed(column.get(name.strip("*"))) for column in columns)] for name in names]


def columns_of(found: dict[tuple[str, int], Row], sides: Iterable[int]) -> list[dict[str, Row]]:
    return [{setting: row for (setting, at), row in found.items() if at == side} for side in sides]


def gpu_calls() -> Table:
    head = pixels(SDXL, "SDXL, ") + pixels(SD1, "SD 1.5, ")
    columns = columns_of(on_gpu("calls", "sdxl"), SDXL) + columns_of(on_gpu("calls", "sd1"), SD1)
    return of_calls(head, columns, milliseconds, REDUCED)


def gpu_passes() -> Table:
    """Steps and passes of SDXL, with predicted steps."""
    columns, both = columns_of(on_gpu("passes", "sdxl"), SDXL), "ToDo 2, interval 2"
    found = [["", *pixels(SDXL)], ["unpatched step", *(milliseconds(c["unpatched"]["computed"]) for c in columns)]]
    found += [[f"{kind} step, {both}", *(milliseconds(c[both][kind]) for c in columns)] for kind in KINDS]
    for name in ("ToDo 2", "interval 2", f"**{both}**"):
        speeds = [f"{c['unpatched']['pass'] / c[name.strip('*')]['pass']:.2f}x" for c in columns]
        found.append([in_ten_steps(name), *speeds])
    return found


KINDS = ("computed", "predicted")


def in_ten_steps(name: str) -> str:
    return f"**10 steps: {name.strip('*')}**" if "*" in name else f"10 steps: {name}"


def attention() -> Table:
    found, other = calls("sd1-ldm"), {"unpatched": "baseline", "ToDo 2, outside its steps": "out of the window"}
    names = [*other, "**ToDo 2**", "lower bound of ToDo 2", "token-downsampling 2", "BiGain 2", "ToMe 0.5"]
    values = {name: found[other.get(name, name.strip("*")), 128]["attention"] for name in (*names, "tomesd 0.5")}
    return [["", "level-1 attention"], *([name, f"{value:.2f} s"] for name, value in values.items())]


def others() -> Table:
    """Other models, at 768 px in float32."""
    found = [["model and size", "unpatched", "ToDo 2", "others"]]
    for name, (layout, kernel, *peers) in OTHERS.items():
        of = calls(layout, "float32", kernel)
        told = ", ".join(f"{peer}: {speed(of[peer, 96])}" for peer in peers)
        found.append([f"{name}, 768 px", seconds(of["baseline", 96]), speed(of["ToDo 2", 96]), told])
    return found


OTHERS = {
    "SD 1.5 in diffusers": ("sd1", "any", "tomesd 0.5", "ImprovedTokenMerge 2"),
    "SD 1.5, the WebUI's InvokeAI attention": ("sd1-ldm", "InvokeAI", "tomesd 0.5", "token-downsampling 2"),
    "ControlNet of SD 1.5 in diffusers": ("sd1-controlnet", "any"),
}
OF_PASSES = {f"SDXL, {8 * side} px": ("sdxl", side) for side in SDXL} | {"SD 1.5, 1024 px": ("sd1", 128)}


def passes() -> Table:
    """Ten steps, computed from timed ones on a CPU."""
    runs = timed_passes()
    found = [
        ["", *OF_PASSES],
        ["unpatched step", *(f"{run['unpatched']['computed']['seconds']:.1f} s" for run in runs)],
    ]
    found.append(["computed step, ToDo 2", *(of_steps(run, "ToDo 2", 1, 0) for run in runs)])
    found.append(["predicted step", *(of_steps(run, "ToDo 2, interval 2", 0, 1) for run in runs)])
    computed = len(DeepPlan(1, 2).computed_steps(10, range(10)))
    for name in ("interval 2", "**ToDo 2, interval 2**"):
        speeds = [of_steps(run, name.strip("*"), computed, 10 - computed) for run in runs]
        found.append([in_ten_steps(name), *speeds])
    return found


def timed_passes() -> list[dict[str, Row]]:
    """By setting, for each column."""
    return [columns_of(rows(part="passes", layout=of, kernel="any"), [side])[0] for of, side in OF_PASSES.values()]


def of_steps(run: dict[str, Row], variant: str, computed: int, predicted: int) -> str:
    """The speed of so many steps, each kind by its median, relative to unpatched ones."""
    own = sum(n * run[variant][kind]["seconds"] for n, kind in zip((computed, predicted), KINDS, strict=True) if n)
    return f"{(computed + predicted) * run['unpatched']['computed']['seconds'] / own:.2f}x"


ON_CPU = ("**ToDo 2**", "ToDo 4", "ToMe 0.5", "tomesd 0.5", "token-downsampling 2", "BiGain 2", "HyperTile 256")
OF_SDXL = ("**ToDo 2**", "ToDo 2 and 2", "ToMe 0.5", "tomesd 0.5")
TABLES: dict[str, Callable[[], Table]] = {
    "On a GPU": gpu_calls,
    "Passes of SDXL": gpu_passes,
    "One UNet call on a CPU": lambda: of_calls(pixels(SD1), columns_of(calls("sd1-ldm"), SD1), seconds, ON_CPU),
    "Level-1 attention alone": attention,
    "Other models": others,
    "One call of SDXL": lambda: of_calls(pixels(SDXL), columns_of(calls("sdxl"), SDXL), seconds, OF_SDXL),
    "A whole pass": passes,
}
