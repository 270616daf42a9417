"""The page: a request and the reduction's settings on one side, both pictures and the figures on the other."""

from __future__ import annotations

import html
import logging
import threading
from pathlib import Path
from typing import Any

import gradio as gr

from todo_core.errors import SettingsError
from todo_core.settings import SETTINGS, Settings
from todo_core.settings.presets import BUILT_IN, CUSTOM, DEFAULT
from todo_core.webui.panel.controls import build as build_control
from todo_core.webui.panel.controls import control_value

from ..pocket.model.vocabulary import CaptionError, vocabulary
from ..sampling.checkpoints import ModelError
from ..sampling.request import SAMPLERS, Request
from . import page_html, results
from .models import HOME, POCKET, Cancelled, Desk, OutOfMemory
from .options import PROMPT

log = logging.getLogger(__name__)

TITLE = "ToDo: a hires pass, whole and reduced"
INTRO = (
    f"# {TITLE}\nThe first pass is painted once. Its hires pass then runs twice, with the whole attention and with the "
    "reduced one, so that what differs is the reduction's doing alone."
)
PROMPTS = (
    PROMPT,
    "two small violet stars on the left over a starry night",
    "three golden balls on a checkered floor",
    "a green pyramid and a rose donut in front of a cloudy sky",
)
WHOLE = ("seed", "width", "height", "steps", "hires_steps")  # whole numbers, which gradio hands over as floats
LONGEST_QUEUE = 20
QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
CSS = Path(__file__).with_name("page.css")


class Page:
    """The blocks of the page over a `desk`; `blocks` is what gradio launches."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stops: dict[str, threading.Event] = {}  # by the session of each visitor who waits for a picture
        with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 3600)) as self.blocks:
            gr.Markdown(INTRO)
            with gr.Row():
                with gr.Column(scale=2, min_width=300):
                    self._ask()
                with gr.Column(scale=3, min_width=300):
                    self._results()
            self._connect()
        self.blocks.queue(max_size=LONGEST_QUEUE)

    def _ask(self) -> None:
        self._model = gr.Dropdown(self._desk.names, value=POCKET, label="Model", visible=len(self._desk.names) > 1)
        self._request = request_controls()
        self._preset = gr.Dropdown([*BUILT_IN, CUSTOM], value=DEFAULT, label="Reduction", elem_id="preset")
        with gr.Row():
            self._go = gr.Button("Compare", variant="primary", elem_id="compare", min_width=120)
            self._cancel = gr.Button("Cancel", elem_id="cancel", min_width=120)
        with gr.Accordion("Settings of the reduction", open=False, elem_id="reduction"):
            used = visible(Settings())
            self._settings = {
                name: build_control(setting, f"set_{name}", visible=name in used) for name, setting in SETTINGS.items()
            }
        with gr.Accordion("Words that the pocket model knows", open=False):
            gr.Markdown(", ".join(sorted(vocabulary().words)))
        gr.Examples([[prompt] for prompt in PROMPTS], [self._request["prompt"]], label="Prompts for the pocket model")

    def _results(self) -> None:
        self._status = gr.HTML(page_html.message("Nothing has been compared yet."), elem_id="status")
        with gr.Row():
            picture = {"format": "png", "interactive": False, "min_width": 220, "buttons": ["download", "fullscreen"]}
            self._pictures = [
                gr.Image(label=label, elem_id=label.split()[0].lower(), **picture)
                for label in ("Baseline", "Reduced", "Difference")
            ]
        self._numbers = gr.HTML(elem_id="numbers")
        self._plan = gr.HTML(elem_id="plan")
        with gr.Accordion("Everything as JSON", open=False):
            self._json = gr.JSON(show_label=False)

    def _connect(self) -> None:
        inputs = [self._model, *self._request.values(), *self._settings.values()]
        outputs = [self._status, *self._pictures, self._numbers, self._plan, self._json]
        common = {"concurrency_limit": 1, "concurrency_id": "model", "show_progress_on": self._status}
        began = self._go.click(self.begin, None, [self._status], **QUIET)
        run = began.then(self.compare, inputs, outputs, api_name="compare", **common)
        self._cancel.click(self.cancel, None, [self._status], cancels=[run], **QUIET)
        self.blocks.unload(self.leave)
        settings = list(self._settings.values())
        self._model.input(self._at_home, [self._model], [self._request[name] for name in HOME], **QUIET)
        self._preset.input(self._fill, [self._preset], settings, **QUIET)
        changed = [control.input for control in settings]
        gr.on(changed, self._arrange, settings, [self._preset, *settings], trigger_mode="always_last", **QUIET)

    def begin(self, visitor: gr.Request) -> str:
        """A visitor asks: whatever was cancelled before is over."""
        session = _session(visitor)
        if session in self._stops and self._stops[session].is_set():
            del self._stops[session]
        self._stops.setdefault(session, threading.Event())
        return ""

    def compare(self, visitor: gr.Request, progress: gr.Progress = gr.Progress(), *values: Any) -> list[Any]:  # noqa: B008
        """What the page shows of a comparison. Raises gr.Error with the reason for what cannot be compared."""
        model, *rest = values
        stop = self._stops.setdefault(_session(visitor), threading.Event())
        try:
            request, settings = parsed(rest)
            pair = self._desk.compare(
                model, request, settings, progress=lambda share, what: progress(share, desc=what), stop=stop
            )
        except Cancelled as cancelled:
            return [page_html.message(str(cancelled)), *[gr.skip()] * 6]
        except (SettingsError, CaptionError, ModelError, OutOfMemory, OSError) as refusal:
            log.warning("page: %s", refusal)
            raise gr.Error(html.escape(str(refusal)), duration=30, print_exception=False) from refusal
        finally:
            if self._stops.get(_session(visitor)) is stop:
                del self._stops[_session(visitor)]
        pictures = results.images(pair, model).values()
        return [
            page_html.message(page_html.verdict(pair)),
            *pictures,
            page_html.numbers(pair),
            page_html.plan(pair),
            results.figures(pair, model),
        ]

    def cancel(self, visitor: gr.Request) -> str:
        """Stop the visitor's run before its next step, or take it out of the queue."""
        self.leave(visitor)
        return page_html.message("Cancelled.")

    def leave(self, visitor: gr.Request) -> None:
        """A visitor who has gone needs no picture."""
        if stop := self._stops.get(_session(visitor)):
            stop.set()

    def _at_home(self, model: str) -> list[Any]:
        return list(self._desk.at_home(model).values())

    def _fill(self, preset: str) -> list[Any]:
        if preset == CUSTOM:
            return [gr.skip()] * len(SETTINGS)
        settings = BUILT_IN[preset]
        values = {name: control_value(setting, getattr(settings, name)) for name, setting in SETTINGS.items()}
        return [gr.update(value=value, visible=name in visible(settings)) for name, value in values.items()]

    def _arrange(self, *values: Any) -> list[Any]:
        """The preset that these values are, and which of the controls are of use."""
        try:
            settings = Settings.parse(dict(zip(SETTINGS, values, strict=True)))
        except SettingsError as error:
            gr.Warning(html.escape(str(error)))
            return [CUSTOM, *[gr.skip()] * len(SETTINGS)]
        name = next((name for name, preset in BUILT_IN.items() if preset == settings), CUSTOM)
        return [name, *(gr.update(visible=name in visible(settings)) for name in SETTINGS)]


def visible(settings: Settings) -> set[str]:
    """The settings that can have an effect here, where there is no img2img."""
    return set(settings.used) - {"img2img"}


def request_controls() -> dict[str, Any]:
    """A control for each field of Request, by name and in their order on the page; all begin at its defaults."""
    start = Request(prompt=PROMPT)
    narrow: dict[str, Any] = {"min_width": 120}
    with gr.Group():
        made = {
            "prompt": gr.Textbox(start.prompt, label="Prompt", lines=2, elem_id="prompt"),
            "negative": gr.Textbox(start.negative, label="Negative prompt", elem_id="negative"),
        }
        with gr.Row():
            for name in ("width", "height", "seed"):
                step = 1 if name == "seed" else 8
                made[name] = gr.Number(getattr(start, name), label=name.capitalize(), step=step, elem_id=name, **narrow)
        with gr.Row():
            made["steps"] = gr.Slider(1, 50, start.steps, step=1, label="Steps", **narrow)
            made["guidance"] = gr.Slider(1, 15, start.guidance, step=0.5, label="Guidance", **narrow)
        with gr.Row():
            made["hires_scale"] = gr.Slider(1, 4, start.hires_scale, step=0.25, label="Hires scale", **narrow)
            made["hires_steps"] = gr.Slider(1, 50, start.hires_steps, step=1, label="Hires steps", **narrow)
        with gr.Row():
            made["denoising"] = gr.Slider(0.05, 1, start.denoising, step=0.05, label="Denoising", **narrow)
            made["sampler"] = gr.Dropdown(list(SAMPLERS), value=start.sampler, label="Sampler", **narrow)
    return made


REQUEST_FIELDS = (
    "prompt", "negative", "width", "height", "seed",
    "steps", "guidance", "hires_scale", "hires_steps", "denoising", "sampler",
)  # fmt: skip


def parsed(values: list[Any]) -> tuple[Request, Settings]:
    """The request and the settings that the controls hold. Raises SettingsError."""
    count = len(REQUEST_FIELDS)
    wanted = dict(zip(REQUEST_FIELDS, values[:count], strict=True))
    for name in WHOLE:
        if isinstance(wanted[name], float) and wanted[name].is_integer():
            wanted[name] = int(wanted[name])
    return Request(**wanted), Settings.parse(dict(zip(SETTINGS, values[count:], strict=True)))


def serve(desk: Desk, port: int | None = None) -> None:
    """Serve the page until it is interrupted. Raises OSError where the port is taken."""
    theme = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    Page(desk).blocks.launch(server_port=port, theme=theme, css_paths=CSS, show_error=True)


def _session(visitor: gr.Request) -> str:
    return str(visitor.session_hash)
