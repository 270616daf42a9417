"""The host runs this at start. Everything that the extension needs, torch and gradio, the host already has."""
