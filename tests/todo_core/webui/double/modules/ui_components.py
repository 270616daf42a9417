"""The WebUI's own gradio components."""

import gradio as gr


class FormRow(gr.Row):
    is_template = True  # the page shows it as its base


class ToolButton(gr.Button):
    is_template = True

    def __init__(self, *args, **kwargs):
        self.webui_tooltip = kwargs.pop("tooltip", None)  # the WebUI gives every component this
        super().__init__(*args, elem_classes=["tool", *kwargs.pop("elem_classes", [])], **kwargs)


class InputAccordion(gr.Checkbox):
    """A checkbox that is an accordion: its value is whether it is open."""

    is_template = True

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
