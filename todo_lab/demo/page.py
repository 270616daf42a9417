"""The page: the request and the settings on one side, the images and the figures on the other."""

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
from .model_runner import MODEL_FIELDS, POCKET, Cancelled, ModelRunner, OutOfMemory
from .options import PROMPT

log = logging.getLogger(__name__)

TITLE = "ToDo: baseline and reduced hires pass"
INTRO = (
    f"# {TITLE}\nThe first pass runs once. The hires pass runs twice: with full and with reduced attention. "
    "Every difference comes from the reduction."
)
PROMPTS = (
    PROMPT,
    "two small violet stars on the left over a starry night",
    "three golden balls on a checkered floor",
    "a green pyramid and a rose donut in front of a cloudy sky",
)
INTEGER_FIELDS = ("seed", "width", "height", "steps", "hires_steps")  # gradio delivers them as floats
LONGEST_QUEUE = 20
QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
CSS = Path(__file__).with_name("page.css")


class Page:
    """The gradio page of a model runner. `blocks` is what gradio launches."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._stops: dict[str, threading.Event] = {}  # one per session that waits for a result
        with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 3600)) as self.blocks:
            gr.Markdown(INTRO)
            with gr.Row():
                with gr.Column(scale=2, min_width=300):
                    self._build_inputs()
                with gr.Column(scale=3, min_width=300):
                    self._build_results()
            self._connect_events()
        self.blocks.queue(max_size=LONGEST_QUEUE)

    def _build_inputs(self) -> None:
        self._model = gr.Dropdown(self._runner.names, value=POCKET, label="Model", visible=len(self._runner.names) > 1)
        self._request = request_controls()
        self._preset = gr.Dropdown([*BUILT_IN, CUSTOM], value=DEFAULT, label="Reduction", elem_id="preset")
        with gr.Row():
            self._go = gr.Button("Compare", variant="primary", elem_id="compare", min_width=120)
            self._cancel = gr.Button("Cancel", elem_id="cancel", min_width=120)
        with gr.Accordion("Reduction settings", open=False, elem_id="reduction"):
            used = Settings().used
            self._settings = {
                name: build_control(setting, f"set_{name}", visible=name in used) for name, setting in SETTINGS.items()
            }
        with gr.Accordion("Known words", open=False):
            gr.Markdown(", ".join(sorted(vocabulary().words)))
        gr.Examples([[prompt] for prompt in PROMPTS], [self._request["prompt"]], label="Example prompts")

    def _build_results(self) -> None:
        self._status = gr.HTML(page_html.message("Press Compare to start."), elem_id="status")
        with gr.Row():
            options = {"format": "png", "interactive": False, "min_width": 220, "buttons": ["download", "fullscreen"]}
            self._images = [
                gr.Image(label=label, elem_id=label.lower(), **options)
                for label in ("Baseline", "Reduced", "Difference")
            ]
        self._figures = gr.HTML(elem_id="numbers")
        self._plan = gr.HTML(elem_id="plan")
        with gr.Accordion("All data", open=False):
            self._json = gr.JSON(show_label=False)

    def _connect_events(self) -> None:
        inputs = [self._model, *self._request.values(), *self._settings.values()]
        outputs = [self._status, *self._images, self._figures, self._plan, self._json]
        common = {"concurrency_limit": 1, "concurrency_id": "model", "show_progress_on": self._status}
        began = self._go.click(self.begin, None, [self._status], **QUIET)
        run = began.then(self.compare, inputs, outputs, api_name="compare", **common)
        self._cancel.click(self.cancel, None, [self._status], cancels=[run], **QUIET)
        self.blocks.unload(self.leave)
        settings = list(self._settings.values())
        model_fields = [self._request[name] for name in MODEL_FIELDS]
        self._model.input(self._fill_request_defaults, [self._model], model_fields, **QUIET)
        self._preset.input(self._fill_settings, [self._preset], settings, **QUIET)
        changed = [control.input for control in settings]
        gr.on(
            changed, self._update_visibility, settings, [self._preset, *settings], trigger_mode="always_last", **QUIET
        )

    def begin(self, visitor: gr.Request) -> str:
        """Start a visitor's run and forget an earlier cancellation."""
        session = _session(visitor)
        if session in self._stops and self._stops[session].is_set():
            del self._stops[session]
        self._stops.setdefault(session, threading.Event())
        return ""

    def compare(self, visitor: gr.Request, progress: gr.Progress = gr.Progress(), *values: Any) -> list[Any]:  # noqa: B008
        """Run a comparison and return the values of the outputs. Raises gr.Error with the reason of a failure."""
        model, *rest = values
        stop = self._stops.setdefault(_session(visitor), threading.Event())
        try:
            request, settings = parse_values(rest)
            comparison = self._runner.compare(
                model, request, settings, progress=lambda fraction, text: progress(fraction, desc=text), stop=stop
            )
        except Cancelled as cancelled:
            return [page_html.message(str(cancelled)), *[gr.skip()] * 6]
        except (SettingsError, CaptionError, ModelError, OutOfMemory, OSError) as error:
            log.warning("page: %s", error)
            raise gr.Error(html.escape(str(error)), duration=30, print_exception=False) from error
        finally:
            if self._stops.get(_session(visitor)) is stop:
                del self._stops[_session(visitor)]
        images = results.images(comparison, model).values()
        return [
            page_html.message(page_html.verdict(comparison)),
            *images,
            page_html.figure_list(comparison),
            page_html.plan_table(comparison),
            results.comparison_data(comparison, model),
        ]

    def cancel(self, visitor: gr.Request) -> str:
        """Stop the visitor's run before its next step, or remove it from the queue."""
        self.leave(visitor)
        return page_html.message("Cancelled.")

    def leave(self, visitor: gr.Request) -> None:
        """Stop the run of a visitor who has left."""
        if stop := self._stops.get(_session(visitor)):
            stop.set()

    def _fill_request_defaults(self, model: str) -> list[Any]:
        return list(self._runner.request_defaults(model).values())

    def _fill_settings(self, preset: str) -> list[Any]:
        if preset == CUSTOM:
            return [gr.skip()] * len(SETTINGS)
        settings = BUILT_IN[preset]
        values = {name: control_value(setting, getattr(settings, name)) for name, setting in SETTINGS.items()}
        return [gr.update(value=value, visible=name in settings.used) for name, value in values.items()]

    def _update_visibility(self, *values: Any) -> list[Any]:
        """The name of the preset with these values, and which controls to show."""
        try:
            settings = Settings.parse(dict(zip(SETTINGS, values, strict=True)))
        except SettingsError as error:
            gr.Warning(html.escape(str(error)))
            return [CUSTOM, *[gr.skip()] * len(SETTINGS)]
        name = next((name for name, preset in BUILT_IN.items() if preset == settings), CUSTOM)
        return [name, *(gr.update(visible=name in settings.used) for name in SETTINGS)]


def request_controls() -> dict[str, Any]:
    """One control per field of Request, in page order, with the default of the field."""
    default = Request(prompt=PROMPT)
    narrow: dict[str, Any] = {"min_width": 120}
    with gr.Group():
        made = {
            "prompt": gr.Textbox(default.prompt, label="Prompt", lines=2, elem_id="prompt"),
            "negative": gr.Textbox(default.negative, label="Negative prompt", elem_id="negative"),
        }
        with gr.Row():
            for name in ("width", "height", "seed"):
                step = 1 if name == "seed" else 8
                made[name] = gr.Number(
                    getattr(default, name), label=name.capitalize(), step=step, elem_id=name, **narrow
                )
        with gr.Row():
            made["steps"] = gr.Slider(1, 50, default.steps, step=1, label="Steps", **narrow)
            made["guidance"] = gr.Slider(1, 15, default.guidance, step=0.5, label="Guidance", **narrow)
        with gr.Row():
            made["hires_scale"] = gr.Slider(1, 4, default.hires_scale, step=0.25, label="Hires scale", **narrow)
            made["hires_steps"] = gr.Slider(1, 50, default.hires_steps, step=1, label="Hires steps", **narrow)
        with gr.Row():
            made["denoising"] = gr.Slider(0.05, 1, default.denoising, step=0.05, label="Denoising", **narrow)
            made["sampler"] = gr.Dropdown(list(SAMPLERS), value=default.sampler, label="Sampler", **narrow)
    return made


REQUEST_FIELDS = (
    "prompt", "negative", "width", "height", "seed",
    "steps", "guidance", "hires_scale", "hires_steps", "denoising", "sampler",
)  # fmt: skip


def parse_values(values: list[Any]) -> tuple[Request, Settings]:
    """The request and the settings of the control values. Raises SettingsError."""
    count = len(REQUEST_FIELDS)
    fields = dict(zip(REQUEST_FIELDS, values[:count], strict=True))
    for name in INTEGER_FIELDS:
        if isinstance(fields[name], float) and fields[name].is_integer():
            fields[name] = int(fields[name])
    return Request(**fields), Settings.parse(dict(zip(SETTINGS, values[count:], strict=True)))


def serve(runner: ModelRunner, port: int | None = None) -> None:
    """Serve the page until it is interrupted. Raises OSError if the port is taken."""
    theme = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    Page(runner).blocks.launch(server_port=port, theme=theme, css_paths=CSS, show_error=True)


def _session(visitor: gr.Request) -> str:
    return str(visitor.session_hash)
