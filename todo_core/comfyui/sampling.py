"""One sampling of ComfyUI: tells the driver its model, ControlNets and steps.

ComfyUI calls wrappers: ours around a sampling makes the state of that sampling, and puts another one around each call
of the denoiser. Both are functions in functions: nodes may copy options deeply, which would copy a method's object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..hosts import Handle, KeysPatch, detect
from ..hosts.conditions import acts_at
from ..hosts.host import isinstance_str
from ..hosts.patchers import with_keys_patch
from ..patching.driver import Driver
from ..patching.plan import Pass
from ..patching.steps import rows_of
from ..patching.time.schedule import step_weights
from ..settings import Settings
from ..token_grid import TokenGrid
from . import compat

# a sampler may compute a sigma of the schedule anew, and round it otherwise
_ROUNDING = 1e-4


def reduced_sampling(settings: Settings, tell: Callable[[str], None]) -> Callable[..., Any]:
    """The wrapper of each sampling with a model. ``tell`` gets one line after each."""
    lines = _Lines()

    def sample(executor: Any, noise: Any, latent: Any, sampler: Any, sigmas: Any, *args: Any, **kwargs: Any) -> Any:
        # after these four: mask, callback, whether the bar is off, seed
        seed = kwargs.get("seed", args[3] if len(args) > 3 else None)
        sampling = Sampling(settings, executor.class_obj, noise.shape, seed, sampler, sigmas.tolist())

        def step(executor: Any, x: Any, sigma: Any, model_options: Any = None, seed: Any = None) -> Any:
            sampling.call(float(sigma.flatten()[0]))
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
        sigmas: Sequence[float],
    ) -> None:
        self._guider, self._sampler, self._size = guider, sampler, TokenGrid.of(shape)
        super().__init__(f"the sampling at {Pass(self._size).pixels}", settings)
        self._rows = rows_of([(seed or 0) + i for i in range(shape[0])])  # seeds as other programs count them
        self._patches = _KeysPatches()
        self._sigmas, self._steps = sigmas, max(1, len(sigmas) - 1)
        own, repeats = compat.makes_own_sigmas(sampler), len({*sigmas}) < len(sigmas)
        self._counts_calls = bool(own) or repeats  # a call may begin no step, or one of several
        self._total = None if own == "dpm_adaptive" or repeats else self._steps

    def options(self, model_options: dict[str, Any]) -> dict[str, Any]:
        """Those of this call of the denoiser."""
        patch = self._patches.patch
        return with_keys_patch(model_options, self._unless_replaced(patch)) if patch else model_options

    def line(self) -> str:
        """The line for the user: what ran, or why nothing did."""
        steps = self.begun if self.interrupted or self._counts_calls else self._steps
        return self.status(steps, "model calls" if self._counts_calls else "steps")

    def _call(self, sigma: float) -> None:
        if self.host is None:
            host = replace(detect(self._guider.model_patcher), patch_keys=self._patches)
            weights = None if self._counts_calls else step_weights(self._sigmas)
            sampler = compat.sampler_of(self._sampler)
            is_video = any(isinstance_str(site.transformer, "SpatialVideoTransformer") for site in host.sites)
            facts = Pass(self._size, self._total, weights=weights, sampler=sampler, is_video=is_video)
            self.use_model(host, compat.controlnets_of(self._guider), facts)
        number = self.begun if self._counts_calls else self._step_at(sigma)
        self.controls = [acts_at(control, sigma) for control in compat.controls_of(self._guider)]
        self.begin_step(number, self._total, self._rows, getattr(self._guider, "cfg", None))

    def _unless_replaced(self, patch: KeysPatch) -> KeysPatch:
        """A replacement may give the values back, one for each key: then there must be as many as queries."""
        driver = self

        def patch_unless_replaced(x: Any, keys: Any, values: Any, options: Any) -> tuple[Any, Any, Any]:
            if compat.is_replaced(options):
                if driver.reduces_this_block:
                    driver.record.note("another node replaces a self-attention: it is not reduced")
                return x, keys, values
            return patch(x, keys, values, options)

        return patch_unless_replaced

    def _step_at(self, sigma: float) -> int:
        """The step that begins at this sigma or before: samplers also call the denoiser between two steps.

        FlipSigmas turns the schedule round, so that sigma rises.
        """
        starts = self._sigmas[:-1]
        if self._sigmas[0] < self._sigmas[-1]:
            begun = sum(each <= sigma * (1 + _ROUNDING) for each in starts)
        else:
            begun = sum(each >= sigma * (1 - _ROUNDING) for each in starts)
        return max(0, begun - 1)
