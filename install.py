"""The WebUI runs this at start. It does nothing: the WebUI already has torch and gradio, all that ToDo needs."""
