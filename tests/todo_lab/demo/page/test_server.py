"""Serving the page: its address, its folder, and its end."""

import signal
import socket
import tempfile
from types import SimpleNamespace
from unittest.mock import create_autospec
from urllib.error import URLError
from urllib.request import urlopen

import gradio as gr
import pytest

from todo_lab.demo import command
from todo_lab.environment import end_in_order


@pytest.fixture
def serve(runner, opening, monkeypatch, tmp_path):
    """Serves the page, calls a function with its address where a user would look at it, then ends with Ctrl+C."""
    for name in ("GRADIO_TEMP_DIR", "no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")  # what is set later ends with the test
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def served(look, port=None):
        def wait(self):
            look(port)
            raise KeyboardInterrupt

        monkeypatch.setattr(command, "threading", SimpleNamespace(Event=type("Event", (), {"wait": wait})))
        with pytest.raises((KeyboardInterrupt, SystemExit)) as ended:
            command.serve(runner, opening, port)
        return ended.value

    return served


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def status(port):
    return urlopen(f"http://127.0.0.1:{port}", timeout=60).status


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9"])
def test_the_page_is_served_at_the_given_port_until_it_is_interrupted(serve, port, monkeypatch, capsys, caplog, proxy):
    """A proxy does not keep it from itself."""
    launch, found = create_autospec(gr.Blocks.launch, side_effect=gr.Blocks.launch), []
    monkeypatch.setattr(gr.Blocks, "launch", launch)
    monkeypatch.setenv("ALL_PROXY" if proxy.startswith("socks") else "http_proxy", proxy)
    caplog.set_level("INFO", "todo_lab")
    serve(lambda port: found.append(status(port)), port)
    launched = launch.call_args.kwargs
    assert (launched["server_port"], launched["show_error"], found) == (port, True, [200])
    assert f"The page: http://127.0.0.1:{port}" in caplog.text
    assert capsys.readouterr().out == ""  # gradio is silent
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}", timeout=5)


def test_pictures_lie_in_a_folder_of_its_own_which_goes_with_it(serve, tmp_path):
    """Also with a closed terminal."""
    (tmp_path / "gradio").write_text("what gradio would use belongs to somebody else")
    found, before = [], signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def look(port):
        found.extend(tmp_path.rglob("*.png"))
        signal.raise_signal(signal.SIGHUP)

    end_in_order()
    assert serve(look).code == 128 + signal.SIGHUP
    signal.signal(signal.SIGHUP, before)
    assert len(found) in (5, 6)  # pictures, what is enlarged, two maps; plain steps may be all, and make the baseline
    assert {path.relative_to(tmp_path).parts[0][:10] for path in found} == {"todo-demo-"}
    assert [path.name for path in tmp_path.iterdir()] == ["gradio"]
