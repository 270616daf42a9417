"""The always-visible script's events, in the host's words; what they do stands in ``job``."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import SettingsError
from . import compat, request, status
from .job import Job

log = logging.getLogger("todo_core")

_ATTRIBUTE = "todo_job"  # on the processing object: state lives and dies with its generation


def begin(p: Any, args: tuple[Any, ...], model: Any) -> None:
    """A generation begins. Bad values are shown to the user, and the images come out unreduced."""
    try:
        asked = request.read(args)
    except SettingsError as error:
        log.error("ToDo: %s", error)
        p.comment(status.nothing(error))
        asked = request.OFF
    setattr(p, _ATTRIBUTE, Job(p, asked, model))


def job_of(p: Any) -> Job | None:
    """The job of a generation, if this extension saw it begin."""
    return getattr(p, _ATTRIBUTE, None)


def on_cfg_denoiser(params: Any) -> None:
    """Host callback: a step of some generation is about to call the UNet."""
    job = job_of(params.denoiser.p)
    if job:
        job.begin_step(params)


def end(p: Any, processed: Any) -> None:
    """A generation has ended."""
    if getattr(p, _ATTRIBUTE, None):
        delattr(p, _ATTRIBUTE)
    if "ToDo" in processed.comments:
        compat.comments_in_api(processed)
