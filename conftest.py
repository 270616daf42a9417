"""Options of the tests. They stand here because pytest reads options from a conftest at its root only."""


def pytest_addoption(parser):
    """Add the options of tests/webui."""
    group = parser.getgroup("webui", "tests on a real AUTOMATIC1111 WebUI (tests/webui)")
    group.addoption("--webui", metavar="URL_OR_DIR", help="a WebUI that runs with --api, or the folder of one to start")
    group.addoption("--webui-python", metavar="PATH", help="python that starts it (default: DIR/venv/bin/python)")
    group.addoption("--webui-args", default="--api", metavar="FLAGS", help="launch.py's flags (default: --api)")
    group.addoption("--webui-checkpoint", metavar="NAME", help="an SD1 checkpoint (default: the current one)")
    group.addoption("--webui-other-checkpoint", metavar="NAME", help="an SD1 checkpoint with another config")
    group.addoption("--webui-sdxl-checkpoint", metavar="NAME", help="an SDXL checkpoint")
    group.addoption("--webui-browser", metavar="PATH", help="a Chromium (default: the one of playwright)")
    group.addoption("--webui-screenshots", metavar="DIR", help="for screenshots (default: a temporary folder)")
