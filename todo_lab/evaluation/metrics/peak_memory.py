"""Peak memory while something runs: on a GPU torch's allocations, else the resident set of the process."""

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
    """The peak in MiB; None if the system does not report it."""

    mib: float | None = None
    kind: str = "not available"


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """``with peak_memory(device) as peak:`` fills ``peak`` on exit.

    On CUDA it is what torch has allocated, the weights included. On Linux it is the resident set of the process. The
    allocator keeps freed memory, so the resident set shows only growth beyond all earlier passes.
    """
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    has_resident_peak = device.type != "cuda" and _reset()
    yield peak
    if device.type == "cuda":
        peak.mib, peak.kind = torch.cuda.max_memory_allocated(device) / 2**20, "CUDA allocated"
    elif has_resident_peak:
        peak.mib, peak.kind = _resident_peak(), "resident set"


def _reset() -> bool:
    try:
        _CLEAR.write_text(RESET_PEAK)
    except OSError:
        return False
    return _STATUS.is_file()


def _resident_peak() -> float:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10
