"""One sampling of ComfyUI: tells the driver its model, ControlNets and steps.

ComfyUI calls wrappers: ours around a sampling makes the state of that sampling, and puts another one around each call
of the denoiser. Both are functions in functions: nodes may copy options deeply, which would copy a method's object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..hosts import Host, detect
from ..hosts.conditions import acting_at
from ..hosts.host import Handle, KeysPatch, isinstance_str
from ..hosts.patchers import with_keys_patch
from ..patching.driver import Driver
from ..patching.facts import Pass
from ..patching.steps import rows_of
from ..reason import Reason
from ..settings import Settings
from ..token_grid import TokenGrid
from . import asked, compat

# a sampler may compute a sigma of the schedule anew, and round it otherwise
_ROUNDING = 1e-4


def reduced_sampling(settings: Settings, tell: Callable[[str], None]) -> Callable[..., Any]:
    """The wrapper of each sampling with a model. ``tell`` gets one line after each."""
    lines = _Lines()

    def sample(executor: Any, noise: Any, latent: Any, sampler: Any, sigmas: Any, *args: Any, **kwargs: Any) -> Any:
        # after these four: mask, callback, whether the bar is off, seed
        seed = kwargs.get("seed", args[3] if len(args) > 3 else None)
        sampling = Sampling(settings, executor.class_obj, noise.shape, seed, sampler, sigmas)

        def step(executor: Any, x: Any, sigma: Any, model_options: Any = None, seed: Any = None) -> Any:
            sampling.attempt(sampling.begin, float(sigma.flatten()[0]), model_options or {})
            return executor(x, sigma, sampling.options(model_options or {}), seed)

        compat.wrap_steps(executor.class_obj, step)
        try:
            return executor(noise, latent, sampler, sigmas, *args, **kwargs)
        except BaseException:
            sampling.interrupted = True
            raise
        finally:
            sampling.remove()
            tell(lines.after(sampling))

    return sample


class _Lines:
    """What the samplings of one prompt did: tiles are many, and a node shows one line."""

    def __init__(self) -> None:
        self._prompt: Any = None
        self._samplings = self._reduced = 0

    def after(self, sampling: Sampling) -> str:
        """The line of a sampling, with how many were reduced where it is not the prompt's first."""
        prompt = compat.running_prompt()
        if prompt != self._prompt:
            self._prompt, self._samplings, self._reduced = prompt, 0, 0
        self._samplings += 1
        self._reduced += sampling.record.acted
        line = sampling.line()
        return f"{self._reduced} of {self._samplings} samplings reduced. {line}" if self._samplings > 1 else line


class _KeysPatches(Handle):
    """Where the session of the UNet puts its patch; each step puts it into its own options."""

    patch: KeysPatch | None = None

    def __call__(self, patch: KeysPatch) -> Handle:
        self.patch = patch
        return self

    def remove(self) -> None:
        self.patch = None


class Sampling(Driver):
    """The state of one sampling. Hooks are on the model from the first step in the window to the last."""

    def __init__(
        self,
        settings: Settings,
        guider: Any,
        shape: Sequence[int],
        seed: int | None,
        sampler: Any,
        sigmas: Tensor,
    ) -> None:
        self._guider, self._sampler, self._size = guider, sampler, TokenGrid.of(shape)
        super().__init__(f"the sampling at {Pass(self._size).pixels}", settings)
        self._rows = rows_of([(seed or 0) + i for i in range(shape[0])])  # seeds as other programs count them
        self._patches = _KeysPatches()
        self._sigmas, self._listed, self._steps = sigmas, sigmas.tolist(), max(1, len(sigmas) - 1)
        self._counts_calls = False  # a call may begin no step of the list, or one of several
        self._total: int | None = self._steps

    def options(self, model_options: dict[str, Any]) -> dict[str, Any]:
        """The options of this call of the denoiser."""
        patch = self._patches.patch
        return with_keys_patch(model_options, self._unless_replaced(patch)) if patch else model_options

    def line(self) -> str:
        """The line for the user: what ran, or why nothing did."""
        steps = self.begun if self.interrupted or self._counts_calls else self._steps
        return str(self.status(steps, "model calls" if self._counts_calls else "steps"))

    def begin(self, sigma: float, model_options: dict[str, Any]) -> None:
        """The denoiser is about to be called."""
        guidance = asked.guidance_of(self._guider, model_options)
        if self.host is None:
            host = replace(detect(self._guider.model_patcher), patch_keys=self._patches)
            self.use_model(host, compat.controlnets_of(self._guider), self._facts(host, guidance.is_split))
        number = self.begun if self._counts_calls else self.number_of(sigma, self._step_at(sigma))
        self.controls = [acting_at(control, sigma) for control in compat.controls_of(self._guider)]
        self.begin_step(number, self._total, self._rows, guidance.weights, sigma)

    def _facts(self, host: Host, is_split: bool) -> Pass:
        """What ComfyUI knows of the sampling, and what its sampler tells."""
        course, falls = None, self._listed[0] > self._listed[-1]  # FlipSigmas turns the schedule round
        if asked.is_own(self._sampler) and falls:
            course = asked.course_of(self._sampler, self._guider, self._sigmas, self._steps_of)
            self._counts_calls = not (course and self._keeps_to_list(course.times))
            self._total = len(course.weights) if course else None
        is_video = any(isinstance_str(site.transformer, "SpatialVideoTransformer") for site in host.sites)
        return Pass(self._size, self._total, course, is_asked=True, is_video=is_video, is_split=is_split)

    def _steps_of(self, times: Sequence[float], own: Sequence[int]) -> Sequence[int]:
        """The sampler's ``own`` steps, where one begins at each sigma: its second calls may be at the next one."""
        if not self._keeps_to_list(times):
            return range(len(times))
        starts = [times[own.index(step)] for step in range(own[-1] + 1)]
        return own if self._keeps_to_list(starts) and len(starts) == self._steps else [*map(self._step_at, times)]

    def _keeps_to_list(self, times: Sequence[float]) -> bool:
        """Whether each step of the list has a call. dpm_fast and dpm_adaptive make sigmas of their own."""
        starts = self._listed[:-1]
        return len({*starts}) == len(starts) and all(
            any(abs(time - start) <= _ROUNDING * start for time in times) for start in starts
        )

    def _unless_replaced(self, patch: KeysPatch) -> KeysPatch:
        """A replacement may give the values back, one for each key: then there must be as many as queries."""
        driver = self

        def patch_unless_replaced(x: Any, keys: Any, values: Any, options: Any) -> tuple[Any, Any, Any]:
            if compat.is_replaced(options):
                if driver.reduces_this_block:
                    driver.record.note(Reason.REPLACED)
                return x, keys, values
            return patch(x, keys, values, options)

        return patch_unless_replaced

    def _step_at(self, sigma: float) -> int:
        """The step that begins at this sigma or before: samplers also call the denoiser between two steps."""
        starts = self._listed[:-1]
        if starts[0] < self._listed[-1]:
            begun = sum(each <= sigma * (1 + _ROUNDING) for each in starts)
        else:
            begun = sum(each >= sigma * (1 - _ROUNDING) for each in starts)
        return max(0, begun - 1)
