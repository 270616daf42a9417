"""The extension in one WebUI process: its presets, and a job for each generation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..settings.presets import Presets
from . import compat, logs
from .generation import infotext, other_reducers, request, status
from .generation.job import Job
from .generation.request import Request
from .panel import axes, options
from .panel.error_text import page_text

log = logging.getLogger("todo_core")

_JOB = "todo_job"  # attribute of a processing object, so that the state ends with the generation


class Extension:
    """What the scripts of the extension share. ``model`` returns the WebUI's current model."""

    def __init__(self, folder: Path, model: Callable[[], Any]) -> None:
        self.presets = Presets(presets_file(folder))
        self.model = model

    def begin(self, p: Any, args: tuple[Any, ...]) -> None:
        """A generation begins; no other script has changed the model for it yet.

        Invalid values are reported to the user, and the images are not reduced.
        """
        logs.set_level(options.value("todo_log"))
        try:
            requested = request.read(args, self.presets.get, request.overrides_of(p))
        except SettingsError as error:
            log.error("ToDo: %s", error)
            p.comment(status.invalid_settings(str(error) if request.has_names(args) else page_text(error)))
            requested = request.OFF
        setattr(p, _JOB, Job(p, _resolve_conflict(p, requested), self.model))

    def end(self, p: Any, processed: Any) -> None:
        """A generation has ended."""
        if job_of(p):
            delattr(p, _JOB)
        if "ToDo" in processed.comments:
            compat.add_to_info(processed, comments=processed.comments)

    def add_options(self) -> None:
        """Add the page Settings > ToDo to the WebUI's settings."""
        options.register(lambda: self.presets.names)

    def add_axes(self) -> None:
        """Add the settings to the X/Y/Z plot."""
        module = compat.xyz_grid()
        if module:
            axes.register(module, lambda: self.presets)


def presets_file(folder: Path) -> Path:
    """The file of the user's own presets; ``folder`` is that of the extension."""
    return folder / "data" / "presets.json"


def _resolve_conflict(p: Any, requested: Request) -> Request:
    """The request, or OFF. Only one of this extension and sd-webui-token-downsampling may act on an image."""
    if not requested.enabled or not other_reducers.downsampling_is_on(p):
        return requested
    if options.value("todo_downsampling_conflict") == "skip the image":
        p.comment(status.downsampling_first())
        return request.OFF
    other_reducers.disable_downsampling(p)
    p.comment(status.downsampling_off())
    return requested


def job_of(p: Any) -> Job | None:
    """The job of a generation, if there is one."""
    return getattr(p, _JOB, None)


def on_infotext_pasted(text: str, params: dict[str, Any]) -> None:
    """WebUI callback: these parameters are about to be pasted into the page. Changes to them take effect."""
    if options.value("todo_paste_merging") == "into the panel" and not other_reducers.merging_is_always_on():
        infotext.convert_token_merging(params)


def on_cfg_denoiser(params: Any) -> None:
    """WebUI callback: a step of some generation is about to call the UNet."""
    job = job_of(params.denoiser.p)
    if job:
        job.begin_step(params)
