"""The most memory that was held while something ran: the GPU's where there is one, the process's otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
RESET_PEAK = "5"  # proc(5): reset the peak resident set size to the current one


@dataclass
class Peak:
    """``mib`` is None where this system does not tell."""

    mib: float | None = None
    kind: str = "not available"


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """``with peak_memory(device) as peak:`` afterwards ``peak`` holds MiB and what they are of.

    On CUDA what torch had allocated, the model's weights with it. On Linux the resident set of the whole process; that
    counts memory which the allocator keeps from before, so only what exceeds all earlier passes shows.
    """
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    can = device.type != "cuda" and _reset()
    yield peak
    if device.type == "cuda":
        peak.mib, peak.kind = torch.cuda.max_memory_allocated(device) / 2**20, "CUDA allocated"
    elif can:
        peak.mib, peak.kind = _resident_peak(), "resident set"


def _reset() -> bool:
    try:
        _CLEAR.write_text(RESET_PEAK)
        return _STATUS.is_file()
    except OSError:
        return False


def _resident_peak() -> float:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10
