"""One sampling of ComfyUI: puts sessions on its model and its ControlNets, and takes them off again.

ComfyUI calls wrappers: ours around a sampling makes the state of that sampling, and puts another one around each call
of the denoiser. Both are functions in functions: nodes may copy options deeply, which would copy a method's object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import UnsupportedModelError
from ..hosts import Handle, KeysPatch, detect, find_controlnet
from ..hosts.patcher_options import with_keys_patch
from ..patching.deep_hooks import why_not_whole_on
from ..patching.plan import Pass, Plan
from ..patching.record import Record
from ..patching.session import Session
from ..samplers import ADDS_NOISE
from ..settings import Settings
from ..token_grid import TokenGrid
from . import compat

log = logging.getLogger("todo_core")

# a sampler may compute a sigma of the schedule anew, and round it otherwise
_ROUNDING = 1e-4


def reduced_sampling(settings: Settings, tell: Callable[[str], None]) -> Callable[..., Any]:
    """The wrapper of each sampling with a model. ``tell`` gets one line about each."""

    def sample(executor: Any, noise: Any, latent: Any, sampler: Any, sigmas: Any, *args: Any, **kwargs: Any) -> Any:
        # after these four: mask, callback, whether the bar is off, seed
        seed = kwargs.get("seed", args[3] if len(args) > 3 else None)
        sampling = Sampling(settings, executor.class_obj, noise.shape, seed, sampler)

        def step(executor: Any, x: Any, sigma: Any, model_options: Any = None, seed: Any = None) -> Any:
            return executor(x, sigma, sampling.begin_step(sigma, model_options or {}), seed)

        compat.wrap_steps(executor.class_obj, step)
        try:
            return executor(noise, latent, sampler, sigmas, *args, **kwargs)
        except BaseException:
            sampling.interrupted = True
            raise
        finally:
            sampling.close()
            tell(sampling.status())

    return sample


class _KeysPatches(Handle):
    """Where the session of the UNet puts its patch; each step puts it into its own options."""

    patch: KeysPatch | None = None

    def __call__(self, patch: KeysPatch) -> Handle:
        self.patch = patch
        return self

    def remove(self) -> None:
        self.patch = None


class Sampling:
    """The state of one sampling. Hooks are on the model from the first step in the window to the last."""

    def __init__(
        self, settings: Settings, guider: Any, shape: Sequence[int], seed: int | None, sampler: Any = None
    ) -> None:
        self.record = Record()
        self.error: Exception | None = None
        self.interrupted = False
        self.steps = self.steps_in_window = 0
        self._settings, self._guider, self._shape, self._sampler = settings, guider, shape, sampler
        self._seeds = [(seed or 0) + i for i in range(shape[0])]  # of the images of a batch, as other programs count
        self._sessions: list[Session] = []  # of the UNet, then of its ControlNets
        self._patches = _KeysPatches()
        self._sigmas: list[float] = []
        self._step, self._pixels = -1, ""
        self._is_attached = False

    def begin_step(self, sigma: Any, model_options: dict[str, Any]) -> dict[str, Any]:
        """The denoiser is about to be called; returns the options for this call."""
        if not self.error:
            try:
                self._begin_step(sigma, model_options)
            except Exception as error:
                self._fail(error)
        patch = self._patches.patch
        return with_keys_patch(model_options, self._unless_replaced(patch)) if patch else model_options

    def close(self) -> None:
        """The sampling is over, or was interrupted: take everything off."""
        for session in self._sessions:
            session.remove()

    def status(self) -> str:
        """What happened, in one line."""
        plan = self._sessions[0].plan if self._sessions else None
        if self.error:
            reason = self.error.reason if isinstance(self.error, UnsupportedModelError) else self.error
            return f"ToDo stopped: {reason}"
        if self.record.acted:
            ended = None if self.interrupted else plan
            summary = self.record.summary(self.steps, plan=ended, skipped=self._skipped_steps(ended))
            return f"ToDo reduced a sampling at {self._pixels}: {summary}{'; interrupted' if self.interrupted else ''}"
        if plan and not plan.reduces:
            return f"ToDo found {plan.nothing_to_reduce}"
        if self.interrupted:
            return "ToDo reduced nothing: the sampling was interrupted"
        return f"ToDo reduced nothing: {self.record.why_nothing_ran(plan, self.steps, self.steps_in_window)}"

    def _skipped_steps(self, plan: Plan | None) -> int:
        """The steps in which ours was to act, and in which a node such as EasyCache has not called the model."""
        if plan is None or not plan.deep.predicts or self._settings.window != "steps":
            return 0
        expected = {step for step in range(self.steps) if plan.predicts_at(step / self.steps)}
        return len(expected - self.record.predicted_calls - self.record.computed_calls)

    def _begin_step(self, sigma: Any, model_options: dict[str, Any]) -> None:
        if not self._sessions:
            self._sigmas = model_options["transformer_options"]["sample_sigmas"].tolist()
            self.steps = max(1, len(self._sigmas) - 1)
            self._sessions = self._make_sessions()
            self._pixels = self._sessions[0].plan.pixels
        step = self._step_at(float(sigma.flatten()[0]))
        if step == self._step:  # samplers of second order call the denoiser more than once
            return
        self._step = step
        for session in self._sessions:
            session.begin_step(step, self.steps, self._seeds, getattr(self._guider, "cfg", None))
        acts = self._sessions[0].acts_in_step()
        self.steps_in_window += acts
        if acts != self._is_attached:
            self._is_attached = acts
            for session in self._sessions:
                session.attach() if acts else session.detach()

    def _unless_replaced(self, patch: KeysPatch) -> KeysPatch:
        """A replacement may give the values back, one for each key: then there must be as many as queries."""
        record = self.record

        def patch_unless_replaced(x: Any, keys: Any, values: Any, options: Any) -> tuple[Any, Any, Any]:
            if compat.is_replaced(options):
                if self._sessions[0].reduces_this_block:
                    record.note("another node replaces a self-attention: it is not reduced")
                return x, keys, values
            return patch(x, keys, values, options)

        return patch_unless_replaced

    def _step_at(self, sigma: float) -> int:
        """The step that begins at this sigma or before: samplers also call the denoiser between two steps."""
        begun = sum(each >= sigma * (1 - _ROUNDING) for each in self._sigmas[:-1])
        return max(0, begun - 1)

    def _make_sessions(self) -> list[Session]:
        host = replace(detect(self._guider.model_patcher), patch_keys=self._patches)
        found = (find_controlnet(module) for module in compat.controlnets_of(self._guider))
        why_not_whole = why_not_whole_on(host.unet) if compat.adds_no_noise(self._sampler) else ADDS_NOISE
        facts = Pass(TokenGrid.of(self._shape), self.steps, why_not_whole)
        hosts = [host, *(replace(net, trained_side=host.trained_side) for net in found if net)]
        return [Session(each, self._settings, facts, record=self.record, on_error=self._fail) for each in hosts]

    def _fail(self, error: Exception) -> None:
        """Leave the rest of the sampling alone: our errors must not cost the user the image."""
        self.error = error
        self.close()
        is_expected = isinstance(error, UnsupportedModelError)
        if not is_expected:
            log.error("ToDo stopped", exc_info=error)
