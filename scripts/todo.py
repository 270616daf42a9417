"""ToDo for WebUI: the script that the WebUI loads. It only passes the WebUI's events on."""

from pathlib import Path

from modules import script_callbacks, scripts, shared

from todo_core.webui import compat, extension
from todo_core.webui.panel import accordion

EXTENSION = extension.Extension(Path(scripts.basedir()), lambda: shared.sd_model)


class ToDoScript(scripts.Script):
    """An accordion in txt2img and img2img."""

    def title(self):
        """The API finds the script by this name, in upper or lower case."""
        return "ToDo"

    def show(self, is_img2img):
        """Always visible, in both tabs."""
        return scripts.AlwaysVisible

    def ui(self, is_img2img):
        """Build the panel. The WebUI calls this twice; the second time is for the API."""
        panel = accordion.build("img2img" if is_img2img else "txt2img", EXTENSION.presets)
        self.infotext_fields = compat.paste_fields(panel.infotext_fields)
        self.paste_field_names = panel.paste_field_names
        return panel.inputs

    def before_process(self, p, *args):
        """A generation begins."""
        EXTENSION.begin(p, args, is_img2img=self.is_img2img)

    def before_process_batch(self, p, *args, **kwargs):
        """A batch begins."""
        if generation := extension.generation_of(p):
            generation.begin_batch()

    def process_batch(self, p, *args, **kwargs):
        """A batch is about to be sampled."""
        if generation := extension.generation_of(p):
            generation.begin_sampling()

    def process_before_every_sampling(self, p, *args, **kwargs):
        """A pass begins."""
        if generation := extension.generation_of(p):
            generation.begin_pass(p, kwargs["x"])

    def post_sample(self, p, *args):
        """All passes of a batch have ended; the batch is not decoded yet."""
        if generation := extension.generation_of(p):
            generation.end_sampling()

    def postprocess_batch(self, p, *args, **kwargs):
        """A batch is decoded."""
        if generation := extension.generation_of(p):
            generation.end_batch()

    def postprocess(self, p, processed, *args):
        """The generation has ended."""
        EXTENSION.end(p, processed)


script_callbacks.on_cfg_denoiser(extension.on_cfg_denoiser)
script_callbacks.on_before_ui(EXTENSION.add_axes)
script_callbacks.on_infotext_pasted(extension.on_infotext_pasted)
if hasattr(script_callbacks, "on_after_process"):  # SD.Next
    script_callbacks.on_after_process(extension.on_after_process)
