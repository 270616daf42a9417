"""A bare page round the panel: the WebUI's fields by their names, its script's functions, and nothing else."""

from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import gradio as gr
from gradio.routes import templates

from todo_core.webui.panel import accordion
from todo_core.webui.presets import Presets

ROOT = Path(__file__).parents[4]
SCRIPTS = (Path(__file__).with_name("webui.js"), *sorted((ROOT / "javascript").glob("*.js")))


@contextmanager
def served(folder):
    """The URL of a page whose panels keep their presets in ``folder``."""
    page = build(folder)
    # gradio 3 has no parameter for scripts; the WebUI, too, puts its own into the template's answer
    head = "".join(f"<script>{path.read_text('utf-8')}</script>" for path in SCRIPTS)
    answer = templates.TemplateResponse

    def with_scripts(*args, **kwargs):
        response = answer(*args, **kwargs)
        response.body = response.body.replace(b"</head>", f"{head}</head>".encode())
        response.init_headers()
        return response

    with patch.object(templates, "TemplateResponse", with_scripts):
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, show_api=False, server_name="127.0.0.1")
        try:
            yield url
        finally:
            page.close(verbose=False)


def build(folder):
    """Both tabs with the WebUI's fields that the panel reads."""
    from modules.ui_components import InputAccordion

    style = (ROOT / "style.css").read_text("utf-8") + ".hidden {display: none !important}"
    presets = Presets(folder / "presets.json")
    with gr.Blocks(css=style, analytics_enabled=False) as page, gr.Tabs(elem_id="tabs"):
        with gr.TabItem("txt2img"):
            gr.Button("Generate", elem_id="txt2img_generate")
            gr.Button("\N{SPARKLES}", elem_id="txt2img_upscale")
            gr.Textbox(lines=3, elem_id="txt2img_prompt")
            gr.Checkbox(label="ControlNet", elem_id="txt2img_controlnet_ControlNet-0_controlnet_enable_checkbox")
            _size("txt2img")
            with InputAccordion(False, label="Hires. fix", elem_id="txt2img_hr"):
                gr.Slider(1, 4, 2.0, step=0.05, label="Upscale by", interactive=True, elem_id="txt2img_hr_scale")
                for side, name in (("width", "x"), ("height", "y")):
                    title = f"Resize {side} to"
                    gr.Slider(0, 2048, 0, step=8, label=title, interactive=True, elem_id=f"txt2img_hr_resize_{name}")
            accordion.build("txt2img", presets)
        with gr.TabItem("img2img"):
            _size("img2img")
            gr.Slider(0.05, 4, 1.0, label="Scale", elem_id="img2img_scale")
            accordion.build("img2img", presets)
    return page


def _size(tab):
    with gr.Row():
        for side in ("width", "height"):
            gr.Slider(64, 2048, 512, step=8, label=side.title(), interactive=True, elem_id=f"{tab}_{side}")
