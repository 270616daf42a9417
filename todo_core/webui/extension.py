"""The extension in one host process: its presets, and the host's events, which it hands to each generation's job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..settings.presets import Presets
from . import compat, logs
from .generation import infotext, neighbours, request, status
from .generation.job import Job
from .generation.request import Request
from .panel import axes, options

log = logging.getLogger("todo_core")

_JOB = "todo_job"  # attribute of a processing object: state lives and dies with its generation


class Extension:
    """What the scripts of the extension share. ``model`` returns the host's model of the moment."""

    def __init__(self, folder: Path, model: Callable[[], Any]) -> None:
        self.presets = Presets(presets_file(folder))
        self.model = model

    def begin(self, p: Any, args: tuple[Any, ...]) -> None:
        """A generation begins, and no other script has yet put anything on the model for it.

        Bad values are shown to the user, and the images come out unreduced.
        """
        logs.set_level(options.value("todo_log"))
        try:
            asked = request.read(args, self.presets.get, request.overrides_of(p))
        except SettingsError as error:
            log.error("ToDo: %s", error)
            p.comment(status.nothing(error))
            asked = request.OFF
        setattr(p, _JOB, Job(p, _alone(p, asked), self.model))

    def end(self, p: Any, processed: Any) -> None:
        """A generation has ended."""
        if job_of(p):
            delattr(p, _JOB)
        if "ToDo" in processed.comments:
            compat.add_to_answer(processed, comments=processed.comments)

    def add_options(self) -> None:
        """Put the page Settings > ToDo into the host's settings."""
        options.register(lambda: self.presets.names)

    def add_axes(self) -> None:
        """Offer the settings to the X/Y/Z plot."""
        module = compat.xyz_grid()
        if module:
            axes.register(module, lambda: self.presets)


def presets_file(folder: Path) -> Path:
    """Where the user's own presets are kept, in the extension's folder."""
    return folder / "data" / "presets.json"


def _alone(p: Any, asked: Request) -> Request:
    """What is asked for, or nothing: of this extension and sd-webui-token-downsampling one alone may act."""
    if not asked.enabled or not neighbours.downsampling(p):
        return asked
    if options.value("todo_beside_downsampling") == "stand aside":
        p.comment(status.nothing("sd-webui-token-downsampling is on, and Settings > ToDo says to stand aside"))
        return request.OFF
    neighbours.silence_downsampling(p)
    p.comment("ToDo has switched sd-webui-token-downsampling off for this generation")
    return asked


def job_of(p: Any) -> Job | None:
    """The job of a generation, if this extension saw it begin."""
    return getattr(p, _JOB, None)


def on_infotext_pasted(text: str, params: dict[str, Any]) -> None:
    """Host callback: these parameters are about to be pasted into the page, and may be changed before."""
    if options.value("todo_paste_merging") == "into the panel" and not neighbours.merges_by_default():
        infotext.adopt_merging(params)


def on_cfg_denoiser(params: Any) -> None:
    """Host callback: a step of some generation is about to call the UNet."""
    job = job_of(params.denoiser.p)
    if job:
        job.begin_step(params)
