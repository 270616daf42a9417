"""ToDo compare: the WebUI loads this script into its Scripts list. It only passes the WebUI's events on."""

from pathlib import Path

from modules import scripts

from todo_core.errors import SettingsError
from todo_core.webui.compare import controls as compare_controls
from todo_core.webui.compare import runner
from todo_core.webui.compare.request import CompareRequest
from todo_core.webui.extension import presets_file
from todo_core.webui.panel import texts
from todo_core.webui.presets import Presets

FILE = presets_file(Path(scripts.basedir()))


class CompareScript(scripts.Script):
    """Makes, in txt2img and img2img, the same seeds without and with ToDo."""

    def title(self):
        """The name in the Scripts list, and the API's ``script_name`` in upper or lower case."""
        return texts.COMPARE.label

    def show(self, is_img2img):
        """Show it in both tabs. The table is registered here, before the WebUI builds the parts above it."""
        if not hasattr(self, "on_after_component"):  # SD.Next has no place for the table, and no steps to time
            return False
        tab, table = "img2img" if is_img2img else "txt2img", compare_controls.ResultTable()
        self.on_after_component(table.after_log, elem_id=f"html_log_{tab}")
        self.on_after_component(table.after_info, elem_id=f"generation_info_{tab}")
        return True

    def ui(self, is_img2img):
        """Build the controls; the WebUI calls this again for the API."""
        controls = compare_controls.build(lambda: Presets(FILE), is_img2img=is_img2img)
        self.infotext_fields = [(controls[0], compare_controls.pasted_presets)]
        return controls

    def run(
        self,
        p,
        names=(),
        heat_maps=CompareRequest.heat_maps,
        repeats=CompareRequest.repeats,
        plain_steps=CompareRequest.plain_steps,
    ):
        """Make and compare the images. A request of the API may leave arguments out."""
        presets = Presets(FILE)
        try:
            chosen = CompareRequest.of(names, heat_maps, repeats, plain_steps, presets)
        except SettingsError as error:
            return runner.refused(p, error)
        return runner.run(p, chosen, presets, title=self.title())
