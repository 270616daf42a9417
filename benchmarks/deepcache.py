"""Speed and difference of DeepCache and of ToDo in the hires pass: each alone, and both together.

    pip install -e ".[evaluation,diffusers]" && pip install --no-deps stable-diffusion-sdkit==2.1.5
    pip install --no-deps --target FOLDER DeepCache==0.1.1      # for this script alone
    PYTHONPATH=FOLDER python benchmarks/deepcache.py --scales 2 3 --intervals 2 3 --prompts 30 --cores 1

DeepCache (arXiv 2312.00858, horseee/DeepCache) keeps the deep features of a UNet call for the next calls. It needs a
diffusers UNet: the pocket model is converted to one, or ``--model`` names a diffusers folder. "DeepCache 3" makes a
full call in every third step; ToDo reduces all calls. One seed for each prompt. All passes of a prompt start from the
same first pass and alternate step by step. MSE is the mean over the prompts, speed the baseline's seconds of a pass
over those of the variant: the median. Both have bootstrap 95 % intervals over the prompts.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from todo_core import Settings
from todo_lab.evaluation.backends.source import Source
from todo_lab.evaluation.prompts import prompt_sets
from todo_lab.evaluation.report.bootstrap import interval
from todo_lab.sampling import passes
from todo_lab.sampling.request import Request

try:
    from DeepCache import DeepCacheSDHelper
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing}: pip install --no-deps --target FOLDER DeepCache==0.1.1, FOLDER in PYTHONPATH"
    ) from None


def converted(pocket: Any) -> Any:
    """The pocket model's UNet in the layout of diffusers. Raises AssertionError if they differ."""
    from diffusers import UNet2DConditionModel
    from diffusers.loaders.single_file_utils import convert_ldm_unet_checkpoint

    sizes = pocket.target.unet_settings
    levels = len(sizes["channel_mult"])
    unet = UNet2DConditionModel(
        sample_size=sizes["image_size"],
        block_out_channels=[sizes["model_channels"] * factor for factor in sizes["channel_mult"]],
        down_block_types=["CrossAttnDownBlock2D"] * levels,
        up_block_types=["CrossAttnUpBlock2D"] * levels,
        layers_per_block=sizes["num_res_blocks"],
        attention_head_dim=sizes["num_heads"],
        cross_attention_dim=sizes["context_dim"],
    ).eval()
    unet.load_state_dict(convert_ldm_unet_checkpoint(pocket.target.state_dict(), dict(unet.config)))
    latents, timestep, context = (
        torch.randn(1, 4, 16, 16),
        torch.tensor([500]),
        torch.randn(1, 77, sizes["context_dim"]),
    )
    with torch.inference_mode():
        expected = pocket.target.unet(latents, timesteps=timestep, context=context)
        torch.testing.assert_close(unet(latents, timestep, context).sample, expected, rtol=1e-3, atol=1e-4)
    return unet


class Cache:
    """DeepCache of one pass. It is on the model during a call only, so that passes can alternate."""

    def __init__(self, unet: Any, calls: int, every: int) -> None:
        timesteps = list(range(calls))
        self._helper = DeepCacheSDHelper(SimpleNamespace(unet=unet, scheduler=SimpleNamespace(timesteps=timesteps)))
        self._helper.set_params(cache_interval=every, cache_branch_id=0)
        self._helper.reset_states()
        self._calls = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The blocks wrapped. The helper asks for the number of the call and calls it a timestep."""
        self._helper.wrap_modules()
        self._helper.pipe.unet.forward = self._helper.function_dict["unet_forward"]
        self._helper.cur_timestep = self._calls
        try:
            yield
        finally:
            self._calls += 1
            for module in self._helper.pipe.unet.modules():  # the helper's own way back leaves these attributes
                vars(module).pop("forward", None)


class Model:
    """A `LatentModel` whose passes take turns: the n-th call is that of the n-th cache."""

    def __init__(self, model: Any, unet: Any) -> None:
        self._model, self.target = model, unet
        self.take_turns([None])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def take_turns(self, caches: list[Cache | None]) -> None:
        """One cache or None for each pass, in their order."""
        self._turns = itertools.cycle(caches)

    def predict(self, latents: Tensor, timestep: Tensor, context: Tensor) -> Tensor:
        """One UNet call, with the cache of its pass."""
        cache = next(self._turns)
        with cache.applied() if cache else nullcontext():
            return self.target(latents, timestep, encoder_hidden_states=context).sample


def variants(intervals: list[int]) -> dict[str, tuple[int, Settings | None]]:
    """(interval of DeepCache, settings of ToDo) by name; interval 1 makes every call in full."""
    todo = {"": None, "ToDo auto": Settings(), "ToDo 4": Settings(factor_1=4)}
    found = {
        " + ".join(filter(None, (f"DeepCache {every}" if every > 1 else "", name))): (every, settings)
        for every in (1, *intervals)
        for name, settings in todo.items()
    }
    return {name: variant for name, variant in found.items() if name}


def measure(model: Model, request: Request, chosen: dict[str, Any], rows: dict[str, list[dict[str, float]]]) -> None:
    """Add one prompt's MSE and speed to the rows of each variant."""
    model.take_turns([None])
    first = passes.first_pass(model, request)
    all_of_them = [(1, None), *chosen.values()]
    caches = [Cache(model.target, request.hires_steps, every) if every > 1 else None for every, _ in all_of_them]
    model.take_turns(caches)
    made = passes.hires_passes(model, request, first, [settings for _, settings in all_of_them])
    baseline, *images = [passes.decode_image(model, one).astype(float) / 255 for one in made]
    for name, image, one in zip(chosen, images, made[1:], strict=True):
        speed = made[0].total_seconds / one.total_seconds
        rows[name].append({"mse": float(((image - baseline) ** 2).mean()), "speed": speed})


def table(scale: float, rows: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """One line for each variant at a scale."""
    for name, found in rows.items():
        mse, speed = [one["mse"] * 1e6 for one in found], [one["speed"] for one in found]
        low, high = interval(mse, np.mean)
        slow, fast = interval(speed, np.median)
        cells = [f"{np.median(speed):.2f}x ({slow:.2f} to {fast:.2f})", f"{np.mean(mse):.0f} ({low:.0f} to {high:.0f})"]
        yield f"| {scale:g} | {name} | {' | '.join(cells)} | {60 - 10 * np.log10(np.mean(mse)):.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=float, nargs="+", default=[2.0, 3.0])
    parser.add_argument("--intervals", type=int, nargs="+", default=[2, 3], metavar="N", help="of DeepCache")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--size", default="128x128", metavar="WxH")
    parser.add_argument("--steps", type=int, default=Request.steps)
    parser.add_argument("--hires-steps", type=int, default=8)
    parser.add_argument("--model", default="pocket", help="pocket (default) or a diffusers folder")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="other weights of the pocket model")
    parser.add_argument("--cores", type=int)
    args = parser.parse_args()
    is_pocket = args.model == "pocket"
    plain = Source(args.model, device="cpu", cores=args.cores, weights=args.weights and str(args.weights)).open().model
    model = Model(plain, converted(plain) if is_pocket else plain.target)
    width, height = (int(side) for side in args.size.split("x"))
    sizes = {"width": width, "height": height, "steps": args.steps, "hires_steps": args.hires_steps}
    guidance = Request.guidance if is_pocket else 7.5
    chosen = variants(args.intervals)
    prompts = prompt_sets.load_prompts("pocket" if is_pocket else "checkpoint")
    print(f"{args.size}, {args.prompts} prompts, {args.hires_steps} hires steps\n")
    print("| scale | variant | speed | MSE x 10^6 | PSNR, dB |\n|---|---|---|---|---|")
    for scale in args.scales:
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
        for text in prompt_sets.evenly_spaced(prompts, args.prompts):
            request = Request(prompt=text, seed=1, hires_scale=scale, guidance=guidance, **sizes)
            measure(model, request, chosen, rows)
        print("\n".join(table(scale, rows)), flush=True)


if __name__ == "__main__":
    main()
