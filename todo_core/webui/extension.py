"""The extension in one WebUI process: its presets, and the state of each generation."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from . import compat
from .generation import infotext, request
from .generation.generation import Generation
from .generation.pass_timer import TIMER
from .panel import axes
from .panel.error_text import api_text, page_text
from .presets import Presets

log = logging.getLogger("todo_core")

_GENERATION = "todo_generation"  # attribute of a processing object, so that the state ends with the generation


class Extension:
    """What the scripts of the extension share. ``model`` returns the WebUI's current model."""

    def __init__(self, folder: Path, model: Callable[[], Any]) -> None:
        self.presets = Presets(presets_file(folder))
        self.model = model
        self._latest: Callable[[], Generation | None] = lambda: None

    def begin(self, p: Any, args: tuple[Any, ...], *, is_img2img: bool) -> None:
        """A generation begins; no other script has changed the model for it yet. ``is_img2img`` tells the script's tab.

        Invalid values are reported to the user, and the images are not reduced.
        """
        if self._belongs_to_another(p, is_img2img=is_img2img):
            return
        try:
            settings = request.settings_of(args, self.presets.get, request.overrides_of(p))
        except SettingsError as error:
            log.error("ToDo: %s", error)
            text = api_text(error) if request.has_names(args) else page_text(error)
            p.comment(f"ToDo is off for this image. {text}")
            settings = None
        if settings and compat.downsampling_is_on(p):  # only one of the two may act on an image
            compat.disable_downsampling(p)
            p.comment(f"{compat.DOWNSAMPLING} is on: ToDo switches it off for this image")
        generation = Generation(p, settings, self.model)
        setattr(p, _GENERATION, generation)
        self._latest = weakref.ref(generation)

    def end(self, p: Any, processed: Any) -> None:
        """A generation has ended."""
        if not generation_of(p):
            return
        delattr(p, _GENERATION)
        self._latest = lambda: None
        if any("ToDo" in line for line in p.comments) or request.cell_of(p):
            compat.share_comments(processed, p)

    def _belongs_to_another(self, p: Any, *, is_img2img: bool) -> bool:
        """Whether another extension runs ``p`` for an image of its own, as ADetailer does for each face.

        Such a generation has a copy of another one's object, or is an img2img generation of the txt2img tab's scripts,
        or begins before the one around it has ended.
        """
        if _GENERATION in vars(p) and not generation_of(p):
            return True
        if compat.is_img2img(p) and not is_img2img:
            return True
        outer = self._latest()
        return outer is not None and outer.p is not p and outer.is_decoding and not hasattr(p, TIMER)

    def add_axes(self) -> None:
        """Add the settings to the X/Y/Z plot."""
        module = compat.xyz_grid()
        if module:
            axes.register(module, lambda: self.presets)


def presets_file(folder: Path) -> Path:
    """The file of the user's own presets; ``folder`` is that of the extension."""
    return folder / "data" / "presets.json"


def generation_of(p: Any) -> Generation | None:
    """The state of the generation of ``p``, if ToDo follows it. A copy of ``p`` has none."""
    generation = getattr(p, _GENERATION, None)
    return generation if generation and generation.p is p else None


def on_infotext_pasted(text: str, params: dict[str, Any]) -> None:
    """WebUI callback: these parameters are about to be pasted into the page, not those of an API request.

    Changes to them take effect.
    """
    try:
        infotext.settings_of(params)
    except SettingsError as error:
        params[infotext.ERROR_KEY] = page_text(error)
    if not compat.merging_on_page("hr"):
        infotext.convert_token_merging(params)


def on_after_process(p: Any) -> None:
    """SD.Next's callback: a generation has ended, also by an interrupt or an error."""
    if generation := generation_of(p):
        generation.close()


def on_cfg_denoiser(params: Any) -> None:
    """WebUI callback: a step of some generation is about to call the UNet."""
    if generation := generation_of(params.denoiser.p):
        generation.begin_step(params)
