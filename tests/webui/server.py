"""Start a WebUI from its folder, with this checkout and the probe among its extensions."""

import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[2]
PROBE = Path(__file__).parent / "probe"
PATIENCE = 300  # seconds until the API has to answer; the first start of a WebUI installs things


class Started(NamedTuple):
    """A WebUI that was started here."""

    url: str
    process: subprocess.Popen


@contextmanager
def started(folder, python, flags, log, others=()):
    """A WebUI that runs while the context is open; its output goes to the file ``log``.

    ``others`` are folders of more extensions.
    """
    with ExitStack() as stack:
        for extension in (CHECKOUT, PROBE, *others):
            stack.enter_context(_linked(extension, folder / "extensions"))
        port = _free_port()
        command = [python or folder / "venv" / "bin" / "python", "launch.py", *shlex.split(flags), "--port", str(port)]
        output = stack.enter_context(log.open("wb"))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        stack.callback(_stop, server)
        _wait_for(server, log)
        yield Started(f"http://127.0.0.1:{port}", server)


@contextmanager
def _linked(extension, extensions):
    """A link to ``extension`` in the WebUI's folder, unless it is there already."""
    if any(present.resolve() == extension.resolve() for present in extensions.iterdir()):
        yield
        return
    link = extensions / f"todo-test-{extension.name}"
    link.symlink_to(extension, target_is_directory=True)
    try:
        yield
    finally:
        link.unlink()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _stop(server):
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def end_with_stacks(process):
    """End a WebUI that hangs; its log then tells where each of its threads was."""
    process.send_signal(signal.SIGABRT)
    process.wait()


def _wait_for(server, log):
    """Wait for the WebUI's word that it has started; a request that comes earlier can end its start with an error."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.poll() is None:
        if b"Startup time:" in log.read_bytes():
            return
        time.sleep(0.2)
    output = log.read_text(errors="replace")[-3000:]
    raise RuntimeError(f"the WebUI did not start, exit status {server.poll()}; the end of {os.fspath(log)}:\n{output}")


def answers(url, path="/todo-probe/events"):
    """Whether the WebUI serves ``path``."""
    try:
        urllib.request.urlopen(url + path, timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True
