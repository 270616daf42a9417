"""ToDo for WebUI: the script that the host loads. It only passes the host's events on."""

from pathlib import Path

from modules import scripts, shared

import todo_core.webui.extension as todo
from todo_core.webui import compat
from todo_core.webui.panel import accordion as todo_ui

EXTENSION = todo.Extension(Path(scripts.basedir()), lambda: shared.sd_model)


class ToDoScript(scripts.Script):
    """An accordion in txt2img and img2img."""

    def title(self):
        """The name under which the API finds the script, in any case of letters."""
        return "ToDo"

    def show(self, is_img2img):
        """Always there, in both tabs."""
        return scripts.AlwaysVisible

    def ui(self, is_img2img):
        """Build the panel; the host calls this twice, once for the API."""
        panel = todo_ui.build("img2img" if is_img2img else "txt2img", EXTENSION.presets)
        self.infotext_fields = panel.infotext_fields
        self.paste_field_names = panel.paste_field_names
        return panel.inputs

    def before_process(self, p, *args):
        """A generation begins."""
        EXTENSION.begin(p, args)

    def before_process_batch(self, p, *args, **kwargs):
        """A batch of it begins."""
        if job := todo.job_of(p):
            job.begin_batch()

    def process_before_every_sampling(self, p, *args, **kwargs):
        """One of its passes begins."""
        if job := todo.job_of(p):
            job.begin_pass(kwargs["x"])

    def postprocess_batch(self, p, *args, **kwargs):
        """A batch has been sampled."""
        if job := todo.job_of(p):
            job.end_batch()

    def postprocess(self, p, processed, *args):
        """The generation has ended."""
        EXTENSION.end(p, processed)


for category, callback in {
    "cfg_denoiser": todo.on_cfg_denoiser,
    "before_ui": EXTENSION.add_axes,
    "ui_settings": EXTENSION.add_options,
    "infotext_pasted": todo.on_infotext_pasted,
}.items():
    compat.listen(category, callback, file=__file__)
