"""Ways to predict the deep transformers between their computed steps, compared with ToDo alone.

    pip install -e . --group evaluation && pip install --no-deps stable-diffusion-sdkit==2.1.5
    python benchmarks/predictors.py --prompts 5 --cores 1
    python benchmarks/predictors.py --prompts 5 --cores 1 --sampler "DPM++ 2M" --hires-steps 20 --intervals 2 3 4

Pocket model, one seed for each prompt, all hires passes from the same first pass, no reduction beside the prediction.
MSE x 10^6 is that of the 8-bit image to the baseline, its mean over the images; PSNR is that of this mean.

kept: the last residual. line: through the last two. gain: the line, corrected by one number for each channel. ridge:
the line, corrected by a matrix for each row, as in `todo_core/prediction.py`. all tokens, 2 x 2 tokens: the same,
fitted on tokens or on means of four, in place of the means of two. left out: nothing is predicted.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from todo_core import Settings, prediction
from todo_lab.evaluation.backends.source import Source
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.sampling.passes import Pass, decode_image, first_pass, hires_pass
from todo_lab.sampling.request import SAMPLERS, Request


def no_weights(x_change: Tensor, r_change: Tensor) -> Tensor:
    """W of the plain line."""
    return x_change.new_zeros(x_change.shape[0], x_change.shape[1], x_change.shape[1])


def gain(x_change: Tensor, r_change: Tensor) -> Tensor:
    """A diagonal W: the least-squares slope of each channel, within -1 and 1."""
    x, r = x_change.flatten(2), r_change.flatten(2)
    return torch.diag_embed(((x * r).sum(2) / x.square().sum(2).clamp_min(1e-30)).clamp(-1, 1))


class Kept(prediction.History):
    """Adds the last residual."""

    def predict(self, time: Tensor, x: Tensor) -> Tensor:
        return x + self._last.residual if self._last else x


class LeftOut(prediction.History):
    """Adds nothing."""

    def predict(self, time: Tensor, x: Tensor) -> Tensor:
        return x


@contextmanager
def predictor(name: str) -> Iterator[None]:
    """Predict in another way for a while: "ridge 0.1" and so on, or one of the other names."""
    from todo_core.patching import streams

    before = prediction._ridge, prediction.RIDGE, prediction.avg_pool2d, streams.History
    kind, _, amount = name.partition(" ")
    try:
        if kind == "ridge":
            prediction.RIDGE = float(amount)
        elif amount.endswith("tokens"):
            cell = 1 if kind == "all" else 2
            prediction.avg_pool2d = lambda tokens, _, **options: avg_pool2d(tokens, cell, **options)
        else:
            prediction._ridge = {"line": no_weights, "gain": gain}.get(kind, prediction._ridge)
            streams.History = {"kept": Kept, "left": LeftOut}.get(kind, prediction.History)  # type: ignore[misc]
        yield
    finally:
        prediction._ridge, prediction.RIDGE, prediction.avg_pool2d, streams.History = before  # type: ignore[misc]


RIDGES = ("ridge 0.03", "ridge 0.1", "ridge 0.3", "ridge 1", "all tokens", "2 x 2 tokens")
NAMES = ("kept", "line", "gain", *RIDGES, "left out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5, help="how many (%(default)s)")
    parser.add_argument("--hires", type=float, default=2.0, help="scale of the hires pass (%(default)s)")
    parser.add_argument("--hires-steps", type=int, default=8, help="steps of the hires pass (%(default)s)")
    parser.add_argument("--sampler", choices=SAMPLERS, default="Euler a", help="of both passes (%(default)s)")
    parser.add_argument("--intervals", type=int, nargs="+", default=[2, 3], help="default: 2 3")
    parser.add_argument("--predictors", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help="default: all")
    parser.add_argument("--weights", help="of a model in another layout")
    parser.add_argument("--side", type=int, default=128, help="of the first pass, in pixels")
    parser.add_argument("--cores", type=int, help="threads of torch; default: its own choice")
    args = parser.parse_args()
    model = Source(device="cpu", dtype="float32", cores=args.cores, weights=args.weights).open().model
    ours = f"ridge {prediction.RIDGE:g}"
    variants = {"ToDo auto": (Settings(interval=1), ours)}
    for interval in args.intervals:
        alone = Settings(factor_1=1, factor_2=1, interval=interval)
        variants |= {f"interval {interval}, {name}": (alone, name) for name in args.predictors}
        variants[f"interval {interval} and ToDo auto"] = Settings(interval=interval), ours
    found: dict[str, list[float]] = {name: [] for name in variants}
    predicted = {}
    for text in prompt_sets.evenly_spaced(prompt_sets.load_prompts("pocket"), args.prompts):
        size = {"width": args.side, "height": args.side, "hires_scale": args.hires}
        request = Request(prompt=text, seed=1, hires_steps=args.hires_steps, sampler=args.sampler, **size)
        first = first_pass(model, request)
        baseline = _image(model, hires_pass(model, request, first))
        for name, (settings, how) in variants.items():
            with predictor(how):
                made = hires_pass(model, request, first, settings)
            found[name].append(float(((_image(model, made) - baseline) ** 2).mean()))
            predicted[name] = len(made.record.predicted_in)
    print(f"{vars(args)}\n\n| | predicted steps | MSE x 10^6 | PSNR | farthest |\n|---|---|---|---|---|")
    for name, errors in found.items():
        mean = float(np.mean(errors))
        psnr = -10 * math.log10(mean) if mean else math.inf
        print(f"| {name} | {predicted[name]} | {mean * 1e6:.1f} | {psnr:.1f} dB | {max(errors) * 1e6:.0f} |")


def _image(model: object, made: Pass) -> np.ndarray:
    return decode_image(model, made).astype(float) / 255  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
