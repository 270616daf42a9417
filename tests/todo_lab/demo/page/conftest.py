"""The page's gradio is newer than the WebUI's, so these tests run in the demo's environment (tests/run.py)."""

from importlib.metadata import version

if int(version("gradio").split(".")[0]) < 6:
    collect_ignore_glob = ["test_*.py"]
