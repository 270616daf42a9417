"""The page: the request beside the result, with the settings below it."""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import gradio as gr

from todo_core.errors import SettingsError
from todo_core.settings import BUILT_IN, SETTINGS, Settings, preset_name
from todo_core.settings.declaration import CUSTOM
from todo_core.webui.panel.controls import build as build_control
from todo_core.webui.panel.controls import control_value

from ..pocket.model.vocabulary import vocabulary
from ..sampling import SAMPLERS, SCHEDULES
from ..sampling.comparison import Comparison
from ..sampling.request import Request
from . import files, page_html, results
from .model_runner import EXPECTED_ERRORS, ModelRunner
from .options import OWN_PROMPTS, PROMPTS
from .progress import Cancelled

log = logging.getLogger(__name__)

TITLE = "ToDo: faster hires fix"
INTRO = f"# {TITLE}\nThe same hires pass: as **baseline**, with **ToDo**, and in the same time with **plain steps**."
ABOUT_POCKET = (
    "The pictures come from a small model made for this demo. It draws shapes and knows {count} words. The speeds are "
    "those of this model on this computer. The README's table is about SD 1.5 and SDXL on a graphics card. There, "
    "other parts of a step take most of the time, so its factors differ."
)
ROWS = (
    ("width", "height", "seed"),
    ("steps", "guidance"),
    ("hires_scale", "hires_steps"),
    ("denoising", "sampler", "schedule"),
)
CHOICES = {"sampler": SAMPLERS, "schedule": SCHEDULES}
SLIDERS = {
    **dict.fromkeys(("steps", "hires_steps"), (1, 50, 1)),
    "guidance": (1, 15, 0.5),
    "hires_scale": (1, 4, 0.25),
    "denoising": (0.05, 1, 0.05),
}
REQUEST_FIELDS = ("prompt", "negative", *chain(*ROWS))
INTEGER_FIELDS = ("seed", "width", "height", "steps", "hires_steps")  # gradio delivers them as floats
MOST_AT_ONCE = LONGEST_QUEUE = 20  # runs; all but one wait. More wait in gradio's queue
QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
PICTURE: dict[str, Any] = {"format": "png", "interactive": False, "buttons": ["download", "fullscreen"]}
TO_RESULTS = """() => setTimeout(() => {
    const results = document.querySelector("#results"), message = document.querySelector("#status").innerText.trim();
    if (results && !message && results.getBoundingClientRect().top > innerHeight / 2) results.scrollIntoView();
}, 100)"""  # on a phone they lie below the settings
LAST = ["todo-last"]  # the class of a result beside a run that goes on
CSS = Path(__file__).with_name("page.css")


class Page:
    """The gradio page of a model runner. It opens with comparisons. `blocks` is what gradio launches."""

    def __init__(self, runner: ModelRunner, opening: Sequence[Comparison]) -> None:
        self._runner = runner
        self._stops: dict[str, threading.Event] = {}  # one per session that waits for a result
        with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 3600)) as self.blocks:
            gr.Markdown(INTRO)
            if runner.is_pocket:
                gr.Markdown(ABOUT_POCKET.format(count=len(vocabulary().words)), elem_id="model")
            with gr.Row(elem_id="layout"):
                with gr.Column(elem_id="inputs", min_width=0):
                    self._build_inputs(opening[0])
                with gr.Column(elem_id="results", min_width=0) as self._results:
                    self._build_results(opening)
                with gr.Column(elem_id="options", min_width=0):
                    self._build_options(opening[0])
            self._connect_events()
        self.blocks.queue(max_size=LONGEST_QUEUE)

    def _build_inputs(self, opening: Comparison) -> None:
        self._prompt = gr.Textbox(opening.request.prompt, label="Prompt", lines=2, elem_id="prompt")
        self._preset = gr.Dropdown(
            [*BUILT_IN, CUSTOM], value=preset_name(opening.settings), label="Preset", elem_id="preset"
        )
        with gr.Row():
            self._go = gr.Button("Compare", variant="primary", elem_id="compare", min_width=100)
            self._cancel = gr.Button("Cancel", elem_id="cancel", min_width=80, visible=False)
        self._status = gr.HTML(elem_id="status")

    def _build_results(self, opening: Sequence[Comparison]) -> None:
        heading, *shown, acted, zoom, own_map, other_map, plan, data = self._shown(opening)
        self._outputs = [gr.HTML(heading, elem_id="heading")]
        with gr.Row(elem_id="pictures"):
            for picture, caption in zip(shown[::2], shown[1::2], strict=True):
                with gr.Column(min_width=0):
                    self._outputs += [gr.Image(picture, show_label=False, **PICTURE), gr.HTML(caption)]
        self._outputs.append(gr.HTML(acted, elem_id="acted"))
        self._outputs.append(gr.Image(zoom, label="Enlarged where they differ most", elem_id="zoom", **PICTURE))
        with gr.Accordion("Difference maps", open=False), gr.Row():
            for each in (own_map, other_map):
                self._outputs.append(gr.Image(each, show_label=False, min_width=220, **PICTURE))
        with gr.Accordion("What was reduced", open=False):
            self._outputs.append(gr.HTML(plan, elem_id="plan"))
        with gr.Accordion("All figures", open=False):
            self._outputs.append(gr.JSON(data, show_label=False))

    def _build_options(self, opening: Comparison) -> None:
        prompts = PROMPTS if self._runner.is_pocket else OWN_PROMPTS
        gr.Examples([[prompt] for prompt in prompts], [self._prompt], label="Example prompts")
        if self._runner.is_pocket:
            with gr.Accordion("Words it knows", open=False, elem_id="words"):
                gr.Markdown(", ".join(sorted(vocabulary().words)))
        with gr.Accordion("Picture settings", open=False, elem_id="picture"):
            self._request = {"prompt": self._prompt, **request_controls(opening.request, self._runner.model.multiple)}
        with gr.Accordion("Reduction settings", open=False, elem_id="reduction"):
            self._settings = {}
            for name, setting in SETTINGS.items():
                made = build_control(setting, f"set_{name}", visible=name in opening.settings.used)
                made.value = control_value(setting, getattr(opening.settings, name))
                self._settings[name] = made

    def _connect_events(self) -> None:
        inputs = [*self._request.values(), *self._settings.values()]
        state = [self._status, self._results, self._cancel]
        # those who wait for the model can cancel, so the runner makes them wait: gradio's queue does not ask them
        common = {"concurrency_limit": MOST_AT_ONCE, "concurrency_id": "model", "show_progress_on": self._status}
        began = self._go.click(self.begin, None, state, **QUIET)
        ran = began.then(self.compare, inputs, [*state, *self._outputs], api_name="compare", **common)
        ran.then(None, None, None, js=TO_RESULTS, **QUIET)
        self._cancel.click(self.leave, None, None, **QUIET)
        self.blocks.unload(self.leave)
        settings = list(self._settings.values())
        self._preset.input(self._fill_settings, [self._preset], settings, **QUIET)
        changed, outputs = [control.input for control in settings], [self._preset, *settings]
        gr.on(changed, self._update_visibility, settings, outputs, trigger_mode="always_last", **QUIET)

    def begin(self, visitor: gr.Request) -> list[Any]:
        """Start a visitor's run: the last result pales until it ends, and an earlier cancellation is forgotten."""
        session = _session(visitor)
        if session not in self._stops or self._stops[session].is_set():
            self._stops[session] = threading.Event()
        return [page_html.ROOM, gr.update(elem_classes=LAST), gr.update(visible=True)]

    def compare(self, visitor: gr.Request, progress: gr.Progress = gr.Progress(), *values: Any) -> list[Any]:  # noqa: B008
        """Run a comparison. Returns the values of the outputs, or the reason why the last result stays."""
        session = _session(visitor)
        stop = self._stops.setdefault(session, threading.Event())
        try:
            comparisons = self._runner.compare(
                *parse_values(values), progress=lambda fraction, text: progress(fraction, desc=text), stop=stop
            )
        except (Cancelled, *EXPECTED_ERRORS) as reason:
            if not isinstance(reason, Cancelled):
                log.warning("page: %s", reason)
            last = [gr.update(elem_classes=[]), gr.update(visible=False)]
            return [page_html.message(str(reason)), *last, *[gr.skip()] * len(self._outputs)]
        finally:
            if self._stops.get(session) is stop:
                del self._stops[session]
        return ["", gr.update(elem_classes=[]), gr.update(visible=False), *self._shown(comparisons)]

    def _shown(self, comparisons: Sequence[Comparison]) -> list[Any]:
        """The values of the outputs."""
        model, told = self._runner.name, results.captions(comparisons)
        baseline, own, own_map, other, other_map, zoom, _ = files.images(comparisons, model).values()
        return [
            page_html.heading(comparisons, model),
            *chain.from_iterable(zip((baseline, own, other), map(page_html.caption, told), strict=True)),
            page_html.acted(told),
            zoom,
            own_map,
            other_map,
            "".join(map(page_html.message, results.plan_lines(comparisons[0]))),
            results.comparison_data(comparisons, model),
        ]

    def leave(self, visitor: gr.Request) -> None:
        """Stop the visitor's run before its next step; it then tells that it was cancelled."""
        if stop := self._stops.get(_session(visitor)):
            stop.set()

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
        return [preset_name(settings), *(gr.update(visible=name in settings.used) for name in SETTINGS)]


def request_controls(request: Request, multiple: int) -> dict[str, Any]:
    """One control per field of a request but its prompt, in page order. Sides are multiples of so many pixels."""
    made: dict[str, Any] = {"negative": gr.Textbox(request.negative, label="Negative prompt", elem_id="negative")}
    for row in ROWS:
        with gr.Row():
            made |= {name: _request_control(name, getattr(request, name), multiple) for name in row}
    return made


def _request_control(name: str, value: Any, multiple: int) -> Any:
    common: dict[str, Any] = {"label": name.capitalize().replace("_", " "), "min_width": 120}
    if name in SLIDERS:
        least, most, step = SLIDERS[name]
        return gr.Slider(least, most, value, step=step, **common)
    if name in CHOICES:
        return gr.Dropdown(list(CHOICES[name]), value=value, **common)
    return gr.Number(value, step=1 if name == "seed" else multiple, elem_id=name, **common)


def parse_values(values: Sequence[Any]) -> tuple[Request, Settings]:
    """The request and the settings of the control values. Raises SettingsError."""
    count = len(REQUEST_FIELDS)
    fields = dict(zip(REQUEST_FIELDS, values[:count], strict=True))
    for name in INTEGER_FIELDS:
        if isinstance(fields[name], float) and fields[name].is_integer():
            fields[name] = int(fields[name])
    return Request(**fields), Settings.parse(dict(zip(SETTINGS, values[count:], strict=True)))


def theme() -> Any:
    """Gradio's default theme with a contrast of 4.5 or more: its captions have 2.5, its main button 2.8."""
    made = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    texts = ("body_text_color_subdued", "block_info_text_color", "block_label_text_color", "block_title_text_color")
    button = "button_primary_background_fill"
    return made.set(
        **dict.fromkeys(texts, "*neutral_600"),
        **{f"{name}_dark": "*neutral_300" for name in texts},
        **dict.fromkeys([button, f"{button}_dark"], "*primary_700"),
        **dict.fromkeys([f"{button}_hover", f"{button}_hover_dark"], "*primary_800"),
    )


def _session(visitor: gr.Request) -> str:
    return str(visitor.session_hash)
