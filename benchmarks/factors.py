"""Difference and speed of ToDo's factors at each hires scale, on the pocket model.

    pip install -e ".[evaluation]" && pip install --no-deps stable-diffusion-sdkit==2.1.5
    python benchmarks/factors.py --scales 1.5 2 3 --factors auto 2,1 2,2 --prompts 30 --cores 1
    python benchmarks/factors.py --scales 1.5 --before ../an-older-checkout

One seed for each prompt. All hires passes of a prompt start from the same first pass and alternate step by step. MSE is
that of the 8-bit image to the baseline: the mean over the prompts. Speed is the median over all steps of the baseline's
seconds to those of the variant. Both have bootstrap 95 % intervals over the prompts. "keys" is the share of the keys
that a level computes. ``--before`` adds the default settings of an older version, from its checkout.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from todo_core import Settings
from todo_lab.evaluation.backends.source import Source
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.evaluation.report.bootstrap import interval
from todo_lab.sampling import passes
from todo_lab.sampling.request import Request

OLDER = "older_todo_core"


def older(module: str) -> Any:
    """A module of the older package."""
    return importlib.import_module(f"{OLDER}.{module}")


def older_default(checkout: Path) -> Any:
    """The default settings of the ``todo_core`` of another checkout, which is imported under another name."""
    spec = importlib.util.spec_from_file_location(OLDER, checkout / "todo_core" / "__init__.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"--before: {checkout} has no todo_core")
    sys.modules[spec.name] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)

    class Default(package.Settings):
        """The sampler asks the settings for their passes; the first versions do not answer."""

        def includes(self, name: str) -> bool:
            return name == "hires"

    return Default()


@contextmanager
def sessions_by_settings() -> Iterator[None]:
    """Let the sampler use the session of the package that the settings are from."""
    current = passes._session

    def session(model: Any, settings: Any, result: Any, on_error: Any) -> Any:
        if settings is None or isinstance(settings, Settings):
            return current(model, settings, result, on_error)
        hosts, sessions, grids = (older(name) for name in ("hosts", "patching.session", "patching.token_grid"))
        size = grids.TokenGrid.of(result.latents.shape)
        made = sessions.Session(hosts.detect(model.target), settings, size=size)
        result.plan = made.plan
        return made

    passes._session = session
    try:
        yield
    finally:
        passes._session = current


def with_interval(figures: list[Any], statistic: Callable[..., Any]) -> tuple[float, float, float]:
    """A statistic of all figures, one row for each prompt, and its bootstrap 95 % interval."""
    return float(statistic(figures)), *interval(figures, statistic)


def measure(model: Any, request: Request, variants: dict[str, Any], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Add one prompt's figures to the rows of each variant."""
    first = passes.first_pass(model, request)
    baseline, *made = passes.hires_passes(model, request, first, [None, *variants.values()])
    picture = passes.decode_image(model, baseline).astype(float) / 255
    for name, one in zip(variants, made, strict=True):
        mse = float(((passes.decode_image(model, one).astype(float) / 255 - picture) ** 2).mean())
        speeds = [a / b for a, b in zip(baseline.step_seconds, one.step_seconds, strict=True)]
        keys = {level.level: level.keys / level.grid.tokens for level in one.plan.levels}
        rows[name].append({"mse": mse, "speeds": speeds, "keys": keys})


def table(scale: float, rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """One line for each variant at a scale."""
    for name, found in rows.items():
        mse, low, high = with_interval([one["mse"] for one in found], np.mean)
        speed, slow, fast = with_interval([one["speeds"] for one in found], np.median)
        keys = ", ".join(f"{share:.2f}" for share in found[0]["keys"].values())
        yield (
            f"| {scale:g} | {name} | {keys} | {mse * 1e6:.0f} ({low * 1e6:.0f} to {high * 1e6:.0f}) "
            f"| {speed:.2f}x ({slow:.2f} to {fast:.2f}) |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.5, 2.0, 3.0])
    parser.add_argument("--factors", nargs="+", default=["auto"], metavar="F1,F2", help='for each level, or "auto"')
    parser.add_argument("--size", default="128x128", metavar="WxH")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--hires-steps", type=int, default=8)
    parser.add_argument("--weights", metavar="FILE", help="other weights of the pocket model")
    parser.add_argument("--before", type=Path, metavar="PATH", help="a checkout of an older version")
    parser.add_argument("--cores", type=int)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of each prompt")
    args = parser.parse_args()
    width, height = (int(side) for side in args.size.split("x"))
    model = Source(device="cpu", dtype="float32", cores=args.cores, weights=args.weights).open().model
    variants: dict[str, Any] = {}
    if args.before:
        variants["default before"] = older_default(args.before)
    for text in args.factors:
        factors = text.split(",")
        one = dict(zip(("factor_1", "factor_2"), factors * (3 - len(factors)), strict=False))
        variants[text] = Settings.parse(one)
    everything = {}
    print(f"{args.size}, {args.prompts} prompts, {args.hires_steps} steps\n")
    print("| scale | factors | keys, levels 1, 2 | MSE x 10^6 | speed |\n|---|---|---|---|---|")
    for scale in args.scales:
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
        with sessions_by_settings():
            for text in prompt_sets.evenly_spaced(prompt_sets.load_prompts("pocket"), args.prompts):
                request = Request(
                    prompt=text,
                    seed=1,
                    width=width,
                    height=height,
                    hires_scale=scale,
                    hires_steps=args.hires_steps,
                )
                measure(model, request, variants, rows)
        print("\n".join(table(scale, rows)), flush=True)
        everything[f"{scale:g}"] = rows
        if args.json:
            args.json.write_text(json.dumps(everything), "utf-8")


if __name__ == "__main__":
    main()
