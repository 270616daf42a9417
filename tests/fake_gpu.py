"""A GPU without one: torch's fake CUDA tensors, and a count of what ToDo's own frames would do on it.

A fake tensor has a shape, a dtype and a device, but no data. An operation on it costs no memory, so that full-size
models can be called. torch needs a guard of the CUDA device, which the dozen words of C++ below register.
"""

import subprocess
import sys
import weakref
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

from todo_core.reduction import downsampling, matching, tables

_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>)
"""
_OURS = f"{Path(__file__).resolve().parents[1] / 'todo_core'}/"
_NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}
_TIMESTEP = 500.0  # what a read of a number on the device returns; that of a truth value is False


def register_guard(factory):
    """Let torch make fake CUDA tensors in this process. Skips the test where there is no compiler."""
    if torch.cuda.is_available() or vars(register_guard).get("done"):
        return
    built = factory.getbasetemp().parent / f"guard-{torch.__version__}.so"  # of all workers
    if not built.exists():
        _build(folder := factory.mktemp("guard"))
        (folder / "guard.so").replace(built)
    torch.ops.load_library(str(built))
    vars(register_guard)["done"] = True


def _build(folder):
    (folder / "guard.cpp").write_text(_GUARD)
    paths = [f"-I{path}" for path in include_paths()]
    for path in library_paths():
        paths += [f"-L{path}", f"-Wl,-rpath,{path}"]
    command = [get_cxx_compiler(), "-shared", "-fPIC", "-std=c++20", "guard.cpp", "-o", "guard.so", *paths, "-lc10"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"fake CUDA tensors need a C++ compiler: {getattr(error, 'stderr', error)}")


class Count(TorchDispatchMode):
    """What the operations that begin in ToDo's frames cost; ``peak`` is of all operations, in bytes.

    ``launches`` counts operations that are no views: a kernel or more each. ``blocking`` counts copies from the host
    that the host waits for, ``copies`` those that it does not wait for, ``syncs`` reads of the device. ``written`` has
    the bytes written, by dtype. ``sorts`` tells whether each sort asks for a stable order: a GPU has to be told.
    """

    def __init__(self):
        super().__init__()
        self.launches = self.blocking = self.copies = self.syncs = 0
        self.written = Counter()
        self.operations = Counter()
        self.sorts = []
        self.peak = self._held = 0
        self._pinned, self._known = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, ours = func.overloadpacket.__name__, in_our_frames()
        if name == "sort":
            self.sorts.append(bool(kwargs.get("stable")))
        if name == "_local_scalar_dense" and isinstance(args[0], FakeTensor):
            self.syncs += ours and args[0].device.type == "cuda"
            return False if args[0].dtype is torch.bool else _TIMESTEP
        out = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self._hold(outputs)
        if kwargs.get("pin_memory"):
            self._pinned.add(outputs[0].untyped_storage()._cdata)
        if ours and outputs and outputs[0].device.type == "cuda":
            self._count(func, name, inputs, outputs, kwargs)
        elif ours and name in ("_to_copy", "copy_") and any(i.device.type == "cuda" for i in inputs):
            self.syncs += 1
        return out

    def _count(self, func, name, inputs, outputs, kwargs):
        storages = {i.untyped_storage()._cdata for i in inputs}
        is_view = not func._schema.is_mutable and outputs[0].untyped_storage()._cdata in storages
        if is_view or name in _NO_KERNEL:
            return
        if name in ("_to_copy", "copy_", "lift_fresh_copy") and inputs[-1].device.type == "cpu":
            source = inputs[-1]
            is_pinned = source.untyped_storage()._cdata in self._pinned
            waits = not (is_pinned and kwargs.get("non_blocking"))
            self.blocking += waits
            self.copies += not waits
            return
        self.launches += 1
        self.operations[name] += 1
        for output in outputs:
            self.written[output.dtype] += output.numel() * output.element_size()

    def _hold(self, outputs):
        for output in outputs:
            storage = output.untyped_storage()
            if output.device.type == "cuda" and storage._cdata not in self._known:
                size = storage.nbytes()
                self._known.add(storage._cdata)
                self._held += size
                self.peak = max(self.peak, self._held)
                weakref.finalize(storage, self._drop, storage._cdata, size)

    def _drop(self, key, size):
        self._known.discard(key)
        self._held -= size


def in_our_frames():
    """Whether a function of ToDo is on the stack, and none of the model's inside it."""
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_filename.startswith(_OURS):
            return True
        if "/diffusers/" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return False


@contextmanager
def autocast_to_half():
    """``torch.autocast("cuda", torch.float16)``, which torch refuses without a GPU."""
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
        torch.set_autocast_enabled("cuda", before)
        torch.clear_autocast_cache()


@contextmanager
def fake_half():
    """All new tensors are fake and in half precision. ToDo's caches keep them as they keep a GPU's, until the end."""
    default = torch.get_default_dtype()
    real = patch.object(tables, "makes_plain_tensors", lambda device: True)
    with real, FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_default_dtype(torch.float16)
        try:
            yield
        finally:
            torch.set_default_dtype(default)
            for kept in (downsampling._flat_positions, downsampling._windows, matching._tables):
                kept.cache_clear()
