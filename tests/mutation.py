"""Mutation tests: change one operator or number of the library at a time, and see whether a test fails.

    .venv-test/bin/pip install -r tests/requirements-mutation.txt
    .venv-test/bin/python tests/mutation.py                        # the whole engine
    .venv-test/bin/python tests/mutation.py --files scores grouping --share 0.2 --out survivors.txt

The changes are those of cosmic-ray. A change that no test notices survives and is printed. Each change gets a fork of
this process, which has already loaded torch, so that it costs no more than its tests. Runs only where fork exists.

No result depends on caches and on the lines that end with ``# pragma: no mutate``: they decide speed or memory alone.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import os
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
REDUCTION, PATCHING = "tests/todo_core/reduction", "tests/todo_core/patching"
SEARCH = [f"{REDUCTION}/test_matching.py"]
SESSION = [f"{PATCHING}/test_hooks.py", f"{PATCHING}/test_interruption.py", f"{PATCHING}/test_refusals.py"]
SESSION += [f"{PATCHING}/test_session_ldm.py", f"{PATCHING}/test_session_diffusers.py", f"{PATCHING}/test_copies.py"]
FORGE = ["tests/todo_core/hosts/test_forge.py"]
COMFYUI = ["tests/todo_core/comfyui/test_nodes.py"]
CONTRACT = ["tests/todo_core/contract"]
HOSTS = ["tests/todo_core/hosts/test_ldm_controlnet.py", "tests/todo_core/hosts/test_video_unets.py"]
HOSTS += [f"{PATCHING}/test_plan.py"]
COMPILE = f"{PATCHING}/test_compile.py"
COSTS = [f"{PATCHING}/test_gpu_costs.py"]
PACING = ["tests/todo_core/test_pacing.py"]
PREDICTION = [f"{PATCHING}/test_prediction.py", f"{PATCHING}/test_whole_steps.py"]
SETTINGS = ["tests/todo_core/settings/test_settings.py"]
# the tests of each file, the quickest first
TESTS = {
    "reduction/clustering": [f"{REDUCTION}/test_clustering.py"],
    "reduction/downsampling": [f"{REDUCTION}/test_downsampling.py"],
    "reduction/grouping": [f"{REDUCTION}/test_clustering.py", *SEARCH],
    "reduction/matching": [*SEARCH, *COSTS],
    "reduction/nearest_destination": [*SEARCH, *COSTS],
    "reduction/scores": [*SEARCH, *COSTS],
    "reduction/tables": [f"{REDUCTION}/test_modes.py", *COSTS],
    "hosts/compiled_code": [COMPILE],
    "hosts/detection": [*HOSTS, *SESSION],
    "hosts/diffusers": [*HOSTS, *SESSION],
    "hosts/host": [*HOSTS, *SESSION, *FORGE],
    "hosts/ldm": [*HOSTS, *SESSION],
    "hosts/ldm_layers": [*HOSTS, *SESSION, *FORGE],
    "hosts/patchers": [*FORGE, *COMFYUI],
    "patching/hooks/deep_hooks": [*PREDICTION, f"{PATCHING}/test_schedulers.py", COMPILE],
    "patching/hooks/keys_hooks": [*SESSION, *FORGE],
    "patching/hooks/module_calls": [*SESSION, COMPILE],
    "patching/hooks/module_hooks": [*SESSION, *FORGE],
    "patching/driver": [*CONTRACT, *COMFYUI, "tests/todo_core/webui/generation"],
    "patching/space/methods": [f"{PATCHING}/test_plan.py", *SESSION],
    "patching/patch": [f"{PATCHING}/test_copies.py", *SESSION],
    "patching/plan": [f"{PATCHING}/test_plan.py", *PREDICTION, *SESSION],
    "patching/record": [f"{PATCHING}/test_record.py", *SESSION],
    "patching/hooks/running_calls": [f"{PATCHING}/test_interruption.py", *SESSION],
    "patching/session": [
        *PREDICTION,
        *SESSION,
        f"{PATCHING}/test_gradients.py",
        f"{PATCHING}/test_schedulers.py",
        *CONTRACT,
        *FORGE,
    ],
    "patching/steps": [f"{PATCHING}/test_steps.py", *SESSION],
    "patching/time/memory": [*PREDICTION, *COSTS],
    "patching/time/deep_plan": [f"{PATCHING}/test_plan.py", *PREDICTION],
    "patching/time/pacing": [*PACING, *PREDICTION],
    "settings/setting": SETTINGS,
    "settings/declaration": SETTINGS,
    "estimate": ["tests/todo_core/test_estimate.py"],
    "work": ["tests/todo_core/test_estimate.py"],
    "tomesd": ["tests/todo_core/test_tomesd.py"],
    "samplers": ["tests/todo_core/test_samplers.py"],
    "token_grid": ["tests/todo_core/test_token_grid.py", f"{PATCHING}/test_plan.py"],
    "patching/time/prediction": [*PREDICTION, *COSTS],
}
# they change nothing, or what no test should hold
IGNORED = ("NoOp", "VariableReplacer", "VariableInserter", "ExceptionReplacer")
# `X | None` stands in annotations alone; nobody writes `is` for `<` or `==` by mistake
ODD = re.compile(r"BitOr|Operator_(?!Is).*_Is(Not)?$")
UNCHANGED = re.compile(r"# pragma: no mutate$|^@(lru_|functools\.)cache|^def .*/, ")  # a `*` between parameters


def mutants(path: Path) -> Iterator[tuple[str, str]]:
    """(what, source) of each change of a file. Of the many other operators for one place, each place gets one."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source, seen = path.read_text("utf-8"), set[tuple[int, str, int]]()
    names = sorted(operator_names())
    random.Random(path.name).shuffle(names)
    for name in names:
        kind = name.split("/")[-1]
        if kind in IGNORED or ODD.search(kind):
            continue
        for occurrence in range(10_000):
            changed = mutate_code(source, get_operator(name)(), occurrence)
            if changed is None:
                break
            line = _line(source, changed)
            if any(UNCHANGED.search(text.splitlines()[line].strip()) for text in (source, changed)):
                continue
            place = line, kind.partition("_")[0], occurrence
            if place not in seen or not kind.startswith("Replace"):
                seen.add(place)
                yield f"{path.stem}:{line + 1}: {changed.splitlines()[line].strip()}", changed


def _line(before: str, after: str) -> int:
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), 0)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of the library from a changed source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.util.spec_from_file_location(name, self._path, loader=self) if name == self._name else None

    def create_module(self, spec: Any) -> None:
        """The usual one."""

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), vars(module))


def status_of(name: str, source: str, limit: int) -> str:
    """Run the tests of a file in a fork, with this source: killed, survived or timed out (``limit`` in CPU seconds)."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        import pytest

        path = ROOT / "todo_core" / f"{name}.py"
        sys.meta_path.insert(0, Changed(f"todo_core.{name.replace('/', '.')}", path, source))
        os.chdir(ROOT)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
        code = int(pytest.main([*options, *TESTS[name]]))
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "timed out"
    return "killed" if os.WEXITSTATUS(status) else "survived"


def _seconds_of_forks() -> float:
    """CPU seconds of all forks so far. A busy machine does not change them."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main(words: Sequence[str] | None = None) -> None:
    """Run the mutants of the chosen files, and print the survivors and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", nargs="+", choices=[name.split("/")[-1] for name in TESTS], help="default all")
    parser.add_argument("--share", type=float, default=1, help="of the mutants, chosen at random; default 1")
    parser.add_argument("--seed", type=int, default=0, help="of that choice")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after so long")
    parser.add_argument("--out", type=Path, help="survivors are added to this file")
    args = parser.parse_args(words)
    import diffusers  # noqa: F401
    import hypothesis  # noqa: F401
    import ldm.modules.diffusionmodules.openaimodel  # noqa: F401
    import torch

    import tests.models  # noqa: F401

    torch.set_num_threads(1)
    started, score = time.monotonic(), Counter[str]()
    for name in TESTS:
        if args.files and name.split("/")[-1] not in args.files:
            continue
        path = ROOT / "todo_core" / f"{name}.py"
        begun, used = time.monotonic(), _seconds_of_forks()
        if status_of(name, path.read_text("utf-8"), 3600) != "survived":
            sys.exit(f"the tests of {name} fail without a change")
        limit = round(20 + 3 * (_seconds_of_forks() - used))
        choice = random.Random(args.seed)
        for what, source in mutants(path):
            if choice.random() >= args.share or time.monotonic() - started > 60 * args.minutes:
                continue
            status = status_of(name, source, limit)
            score[status] += 1
            if status == "survived":
                print(f"survived: {what}", flush=True)
                if args.out:
                    with args.out.open("a", encoding="utf-8") as out:
                        out.write(f"{what}\n")
        killed, all_of = score["killed"] + score["timed out"], score.total()
        print(f"{name}: in all {killed} of {all_of} killed, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
