"""The AUTOMATIC1111 side: the only code here that imports ``modules`` or ``gradio``."""
