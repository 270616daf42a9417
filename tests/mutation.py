"""Mutation tests: change one operator, number or condition of a file at a time, and see whether a test fails.

    .venv-test/bin/python tests/mutation.py todo_core/settings/setting.py tests/todo_core/settings
    .venv-test/bin/python tests/mutation.py todo_core/reduction/matching.py tests/todo_core/reduction --most 40

A change that no test notices survives and is printed. Name the quickest tests first. Each change gets a fork of this
process, which has already loaded all libraries, so that it costs little more than its tests. Runs only where fork
exists. No result depends on caches and on the lines that end with ``# pragma: no mutate``: they decide speed or memory
alone.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SWAPS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
SWAPS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.BitAnd, ast.BitOr)]
SWAPPED = {a: b for pair in SWAPS for a, b in (pair, pair[::-1])}
SWAPPED |= {ast.Mult: ast.Add, ast.Mod: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}
UNCHANGED = re.compile(r"# pragma: no mutate$|cache\b")
OURS = {"tests", "todo_core", "todo_lab"}  # the root is a package too: its name may stand before
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]


def replacements(node: Any) -> Iterator[ast.AST]:
    """What a node can be changed to."""
    match node:
        case ast.Compare(left, [op, *ops], others) if type(op) in SWAPPED:
            yield ast.Compare(left, [SWAPPED[type(op)](), *ops], others)
        case ast.BinOp(left, op, right) if type(op) in SWAPPED:
            yield ast.BinOp(left, SWAPPED[type(op)](), right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(SWAPPED[type(op)](), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.If(test, body, others) | ast.IfExp(test, body, others):
            yield type(node)(ast.UnaryOp(ast.Not(), test), body, others)


def places(node: ast.AST) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of each node below one, but for annotations."""
    for name, value in ast.iter_fields(node):
        holder, keys = (value, range(len(value))) if isinstance(value, list) else (vars(node), [name])
        for key in keys if name not in ("annotation", "returns") else ():
            if isinstance(holder[key], ast.AST):
                yield holder, key
                yield from places(holder[key])


def mutants(path: Path) -> list[tuple[str, Callable[[], Any]]]:
    """(what, its code) of each change of a file."""
    source, found = path.read_text("utf-8"), []
    tree, lines = ast.parse(source), source.splitlines()

    def code_with(holder: Any, key: Any, new: ast.AST) -> Any:
        holder[key] = ast.copy_location(new, holder[key])
        return compile(ast.fix_missing_locations(tree), str(path), "exec")

    for holder, key in places(tree):
        old = holder[key]
        line = lines[getattr(old, "lineno", 1) - 1].strip()
        for new in () if UNCHANGED.search(line) else replacements(old):
            before, after = (ast.unparse(each).splitlines()[0] for each in (old, new))
            what = f"{path.stem}:{old.lineno}: {before} -> {after}"
            found.append((what, lambda place=(holder, key, new): code_with(*place)))
    return found


def status_of(module: str, code: Callable[[], Any] | None, tests: list[str], limit: int) -> str:
    """Run the tests in a fork with this code of a module: killed, survived or timed out (``limit`` in CPU seconds)."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        own = SourceFileLoader.get_code
        SourceFileLoader.get_code = lambda self, name: code() if code and name == module else own(self, name)
        os._exit(run([*OPTIONS, *tests]))
    _, status = os.waitpid(child, 0)
    return "timed out" if os.WIFSIGNALED(status) else "killed" if os.WEXITSTATUS(status) else "survived"


def run(words: list[str]) -> int:
    """Run pytest without a word; its status. What it has imported of this project is forgotten."""
    import pytest

    out, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    status = int(pytest.main(words))
    os.dup2(out, 1)
    for name in [name for name in sys.modules if OURS & {*name.split(".")[:2]}]:
        del sys.modules[name]
    return status


def main() -> None:
    """Run the mutants of a file, and print the survivors and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--most", type=int, default=10**9, help="of the mutants, chosen at random; default all")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ["OMP_NUM_THREADS"] = "1"
    run([*OPTIONS, "--collect-only", *args.tests])
    module = ".".join(args.file.resolve().relative_to(ROOT).with_suffix("").parts)
    if status_of(module, None, args.tests, 3600) != "survived":
        sys.exit("the tests fail without a change")
    limit, score = round(20 + 3 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime), Counter[str]()
    found = mutants(args.file)
    for what, code in random.Random(0).sample(found, min(args.most, len(found))):
        status = status_of(module, code, args.tests, limit)
        score[status] += 1
        if status != "killed":
            print(f"{status}: {what}", flush=True)
    print(f"{args.file}: {score.total() - score['survived']} of {score.total()} killed")


if __name__ == "__main__":
    main()
