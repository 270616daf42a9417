"""The WebUI's own gradio components."""

import gradio as gr


class FormRow(gr.Row):
    def get_block_name(self):
        return "row"


class ToolButton(gr.Button):
    def __init__(self, *args, **kwargs):
        self.webui_tooltip = kwargs.pop("tooltip", None)  # the WebUI gives every component this
        super().__init__(*args, elem_classes=["tool", *kwargs.pop("elem_classes", [])], **kwargs)

    def get_block_name(self):
        return "button"


class InputAccordion(gr.Checkbox):
    """A checkbox that is an accordion: its value is whether it is open."""

    def __init__(self, value, **kwargs):
        self.accordion_id = kwargs["elem_id"]
        super().__init__(value, **{**kwargs, "elem_id": f"{self.accordion_id}-checkbox", "visible": False})
        self.accordion = gr.Accordion(**{**kwargs, "open": value, "elem_classes": ["input-accordion"]})

    def extra(self):
        return gr.Column(elem_id=f"{self.accordion_id}-extra", elem_classes="input-accordion-extra", min_width=0)

    def __enter__(self):
        self.accordion.__enter__()
        return self

    def __exit__(self, *exception):
        self.accordion.__exit__(*exception)

    def get_block_name(self):
        return "checkbox"
