"""The extension for AUTOMATIC1111's WebUI: the only code that imports ``modules`` or ``gradio``."""
