"""The extension in one host process: its presets, and the host's events, which it hands to each generation's job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..presets import Presets
from . import axes, compat, request, status
from .job import Job

log = logging.getLogger("todo_core")

_JOB = "todo_job"  # attribute of a processing object: state lives and dies with its generation


class Extension:
    """What the scripts of the extension share. ``model`` returns the host's model of the moment."""

    def __init__(self, folder: Path, model: Callable[[], Any]) -> None:
        self.presets = Presets(folder / "data" / "presets.json")
        self.model = model

    def begin(self, p: Any, args: tuple[Any, ...]) -> None:
        """A generation begins. Bad values are shown to the user, and the images come out unreduced."""
        try:
            asked = request.read(args, self.presets.get, request.overrides_of(p))
        except SettingsError as error:
            log.error("ToDo: %s", error)
            p.comment(status.nothing(error))
            asked = request.OFF
        setattr(p, _JOB, Job(p, asked, self.model))

    def end(self, p: Any, processed: Any) -> None:
        """A generation has ended."""
        if job_of(p):
            delattr(p, _JOB)
        if "ToDo" in processed.comments:
            compat.comments_in_api(processed)

    def add_axes(self) -> None:
        """Offer the settings to the X/Y/Z plot."""
        module = compat.xyz_grid()
        if module:
            axes.register(module, lambda: self.presets)


def job_of(p: Any) -> Job | None:
    """The job of a generation, if this extension saw it begin."""
    return getattr(p, _JOB, None)


def on_cfg_denoiser(params: Any) -> None:
    """Host callback: a step of some generation is about to call the UNet."""
    job = job_of(params.denoiser.p)
    if job:
        job.begin_step(params)
