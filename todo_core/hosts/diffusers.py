"""diffusers: UNet2DConditionModel of SD1.5, SD2 and SDXL, alone or in a pipeline, and ControlNetModel.

A ControlNet is the first half of a UNet, with outputs of its own in the place of the second half. In the UNets for
video, spatial transformers see each frame as a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch.nn import Module

from ..course import Course
from ..errors import UnsupportedModelError
from ..reason import Reason
from ..token_grid import TokenGrid
from .host import Arguments, Host, LogSigmas, Sampler, isinstance_str, original
from .schedulers import course_of_scheduler
from .stack import find_frame

_ARGUMENTS = Arguments(
    latent="sample", timestep="timestep", hidden="hidden_states", context="encoder_hidden_states", mask="attention_mask"
)


def find(model: Any) -> Host | None:
    """The host of a pipeline, a UNet or a ControlNet; None for anything else."""
    if isinstance_str(model, "MultiControlNetModel"):
        raise UnsupportedModelError(model, "patch each of its ControlNets: for net in model.nets: apply_patch(net)")
    unet = original(getattr(model, "unet", model))
    if isinstance_str(unet, "UNetControlNetXSModel"):
        raise UnsupportedModelError(unet, "it runs a UNet and a ControlNet side by side. Patch a plain UNet")
    network = "UNet" if hasattr(unet, "up_blocks") else "ControlNet" if hasattr(unet, "controlnet_down_blocks") else ""
    if not (network and hasattr(unet, "down_blocks") and hasattr(unet, "mid_block")):
        return None
    size = getattr(unet.config, "sample_size", None)  # a number, or (height, width)
    side = float((size[0] if isinstance(size, (list, tuple)) else size) or 64)
    return Host(network, unet, partial(_in_running_order, unet), side, _ARGUMENTS, _conflict, _Scheduler(unet, model))


def _in_running_order(unet: Any) -> Iterator[tuple[int, Module]]:
    """(depth, module) of all modules. A module's output has the size of the latent, halved ``depth`` times.

    The middle block is registered last, but it runs between the others.
    """
    depth = 0
    yield depth, unet.conv_in
    for block in (*unet.down_blocks, unet.mid_block, *getattr(unet, "up_blocks", ())):
        resampled = depth + bool(getattr(block, "downsamplers", None)) - bool(getattr(block, "upsamplers", None))
        for name, part in block.named_children() if block is not None else ():
            here = resampled if name in ("downsamplers", "upsamplers") else depth
            yield from ((here, module) for module in part.modules())
        depth = resampled
    if hasattr(unet, "conv_out"):
        yield depth, unet.conv_out


def _conflict(attention: Any, _: TokenGrid) -> Reason | None:
    if "_original_forward" in vars(attention):  # SD.Next's HyperTile splits queries alone, and then loses their order
        return Reason.HYPERTILE
    processor = type(getattr(attention, "processor", None)).__name__
    if processor.startswith("PAG"):  # it ignores the context
        return Reason.PERTURBED
    return Reason.FUSED if "Fused" in processor else None


class _Scheduler(Sampler):
    """What the pipeline tells that calls the UNet: several may share one UNet, as by ``from_pipe``.

    A loop of one's own may use the patched pipeline's scheduler; its guidance is not known.
    """

    def __init__(self, unet: Module, pipeline: Any) -> None:
        self._unet, self._patched = unet, pipeline
        self._all: Any = None
        self._kept: Any = None
        self._end: float | None = None

    def _call(self) -> dict[str, Any]:
        """The variables of the running call of a pipeline, of which ``self`` is the pipeline; empty where none runs."""
        frame = find_frame(lambda each: each.f_code.co_name == "__call__" and self._is_of(each.f_locals.get("self")))
        return frame.f_locals if frame else {}

    def _is_of(self, pipeline: Any) -> bool:
        return original(getattr(pipeline, "unet", None)) is self._unet

    @property
    def _pipeline(self) -> Any:
        return self._call().get("self", self._patched)

    @property
    def _scheduler(self) -> Any:
        return getattr(self._pipeline, "scheduler", None)

    def timesteps(self) -> Any:
        """The timesteps, without the refiner's after ``denoising_end``. Read once: the program waits for a GPU."""
        pipeline = self._pipeline
        scheduler: Any = getattr(pipeline, "scheduler", None)
        end = getattr(pipeline, "denoising_end", None)
        times = getattr(scheduler, "timesteps", None)
        if getattr(scheduler, "num_inference_steps", 0) is None:  # it lists all 1,000 until it is set
            return None
        if times is None or not isinstance(end, float) or not 0 < end < 1:
            return times
        if times is not self._all or end != self._end:
            trained = scheduler.config.num_train_timesteps
            self._all, self._end, self._kept = times, end, times[times >= round(trained * (1 - end))]
        return self._kept

    def run(self) -> Any:
        """The list that the running call goes through: panorama puts copies of it into the scheduler for each view."""
        of_call = self._call().get("timesteps")
        return self.timesteps() if of_call is None else of_call

    def step_index(self) -> int | None:
        """The index of the step; before the first one, where the pipeline begins."""
        scheduler = self._scheduler
        found = (getattr(scheduler, name, None) for name in ("step_index", "begin_index"))
        index = next((each for each in found if each is not None), None)
        return index if isinstance(index, int) else None

    def progress(self, timestep: float) -> float:
        """Kolors has 1,100 timesteps; those of EDM schedulers and of Euler for v-prediction may be continuous."""
        scheduler = self._scheduler
        config: Any = getattr(scheduler, "config", None)
        is_continuous = getattr(config, "timestep_type", "") == "continuous"
        if hasattr(scheduler, "precondition_noise") or (is_continuous and config.prediction_type == "v_prediction"):
            return LogSigmas().progress(timestep)
        return 1 - timestep / getattr(config, "num_train_timesteps", 1000)

    def repeats_timesteps(self) -> bool:
        """Second-order schedulers list some twice, and PNDM one. Others do so only where two steps round to one."""
        scheduler = self._scheduler
        return not hasattr(scheduler, "step_index") or getattr(scheduler, "order", 1) > 1

    def course(self, first: int, steps: Sequence[int]) -> Course | None:
        """The pipeline of the call tells eta, which some schedulers take."""
        return course_of_scheduler(self._scheduler, first, steps, self._call().get("eta"))

    def weights(self) -> tuple[float, ...] | None:
        """Pipelines keep the scale of their last call, and tell whether it has rows of the negative prompt.

        The scale does not tell: 0 and 0.5 mean none, and a UNet that was distilled from guidance takes it as an input.
        """
        pipeline = self._call().get("self")
        if getattr(pipeline, "do_perturbed_attention_guidance", False):  # a third part of the rows
            return None
        guider: Any = getattr(pipeline, "guider", None)
        if guider is not None:  # of a modular pipeline: prompt and negative prompt have calls of their own
            return (1.0,) if guider.num_conditions == 1 else None
        if getattr(pipeline, "do_classifier_free_guidance", None) is False:
            return (1.0,)
        scale, of_image = (getattr(pipeline, name, None) for name in ("_guidance_scale", "_image_guidance_scale"))
        if not isinstance(scale, (int, float)):
            return None
        # InstructPix2Pix: prompt and image, image alone, neither
        return (1 - scale, scale) if of_image is None else (scale, of_image - scale, 1 - of_image)

    def controls(self) -> Any:
        """All pipelines with ControlNets have them in this variable; it is 0 after the end of one."""
        return self._call().get("cond_scale")

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the UNet leaves the patched pipeline behind."""
        return _Scheduler, (self._unet, None)
