"""app.py and the commands of the demo: the normal run, invalid input, a full disk."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

import app  # noqa: E402
from tests.todo_lab.saved_pipelines import save_sd1, save_sdxl  # noqa: E402
from todo_core import Settings  # noqa: E402
from todo_lab.demo import results  # noqa: E402
from todo_lab.demo.model_runner import ModelRunner  # noqa: E402
from todo_lab.demo.options import OWN_PROMPTS, POCKET_DEFAULTS, PROMPTS  # noqa: E402
from todo_lab.sampling import SAMPLERS, SCHEDULES  # noqa: E402
from todo_lab.sampling.request import Request  # noqa: E402

SIZE = ["--width", "64", "--height", "64", "--steps", "1", "--hires-scale", "2", "--hires-steps", "2"]
QUICK = ["--here", "--no-page", *SIZE]


@pytest.fixture
def run(tmp_path, caplog):
    """Run app.py's main with quick options; returns (status, log text, folder)."""
    caplog.set_level("INFO")

    def with_options(*options):
        status = app.main([*QUICK, "--out", str(tmp_path / "out"), *options])
        return status, caplog.text, tmp_path / "out"

    return with_options


def test_the_main_job_says_what_each_picture_took_and_writes_it(run, capsys):
    status, said, folder = run("--set", "factor_1=2", "--seed", "7")
    assert status == 0
    written = json.loads((folder / "figures.json").read_text("utf-8"))
    own, plain = written["variants"]
    assert re.fullmatch("[12] plain steps", plain)
    variants = [f"{name.replace(' ', '-')}{end}.png" for name in (own, plain) for end in ("", "-difference")]
    names = ["baseline.png", *variants, "zoom.png", "overview.png"]
    assert {path.name for path in folder.iterdir()} == {*names, "figures.json"}
    assert written["variants"]["custom"]["settings"]["factor_1"] == 2
    assert (written["request"]["seed"], written["model"]) == (7, "pocket")
    assert "seed 7, 64 x 64 to 128 x 128, 2 hires steps" in said
    for line in (
        f"baseline: {results.seconds(written['seconds'])}",
        "custom: [0-9.]+ s; .*; [0-9.]+ dB: ",
        f"{plain}: ",
    ):
        assert re.search(line, said)
    assert "level 1 from 256 to 64 tokens (downsample) in 2 of 2 steps" in said
    assert said.rstrip().endswith(f"Pictures: {folder / names[0]}, {', '.join(names[1:])}. All figures: figures.json")
    assert Image.open(folder / "baseline.png").info["parameters"].count("ToDo") == 0
    assert "Seed: 7" in Image.open(folder / "custom.png").info["parameters"]
    assert "Hires pass, baseline and reduced in turn: step 1 of 2, about" in capsys.readouterr().out


def test_the_default_is_a_size_at_which_the_model_draws_clean_shapes(monkeypatch, tmp_path):
    asked = []

    def stops(runner, request, settings, **_):
        asked.append((request, settings))
        raise OSError("enough")

    monkeypatch.setattr(ModelRunner, "compare", stops)
    assert app.main(["--here", "--no-page", "--out", str(tmp_path)]) == 2
    ((request, settings),) = asked
    assert request == Request(prompt=PROMPTS[0], **POCKET_DEFAULTS)
    assert request.hires_size == (512, 512)
    assert settings == Settings()


@pytest.mark.parametrize(("save", "guidance"), [(save_sd1, 7.5), (save_sdxl, 5.0)], ids=["sd1", "sdxl"])
def test_a_model_of_ones_own_has_its_own_defaults(save, guidance, tmp_path, caplog):
    caplog.set_level("INFO")
    folder, out = save(tmp_path / "mine", side=64), tmp_path / "out"
    options = ["--here", "--no-page", "--steps", "1", "--hires-steps", "1", "--set", "factor_1=2"]
    assert app.main([*options, "--model", str(folder), "--out", str(out)]) == 0
    written = json.loads((out / "figures.json").read_text("utf-8"))
    own = {"prompt": OWN_PROMPTS[0], "width": 64, "height": 64, "guidance": guidance, "hires_scale": 2.0}
    assert written["request"].items() >= own.items()
    assert written["model"] == "mine"
    assert "in 1 of 1 step" in written["variants"]["custom"]["acted"]
    assert "1 plain steps: " in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--width", "68"], "width = 68 is not possible; allowed: a whole number from 64 to 4096, a multiple of 8"),
        (["--prompt", "a cat"], "The pocket model does not know"),
        (["--preset", "none"], "preset = 'none' is not possible; allowed: 'Balanced'"),
        (["--set", "factor=2"], "set = 'factor=2' is not possible; allowed: NAME=VALUE"),
        (["--model", "none.safetensors"], "none.safetensors cannot be used: there is no such file or folder"),
    ],
)
def test_an_invalid_value_is_reported_and_nothing_is_written(run, options, text, monkeypatch):
    monkeypatch.chdir(ROOT)
    status, said, folder = run(*options)
    assert status == 2
    assert text in said
    assert "Traceback" not in said
    assert not folder.exists()


TOLD_FIRST = {
    "a file": "--out {out}: {out} is a file, not a folder.",
    "unwritable": "--out {out}: {out.parent} cannot be written to.",
    "a taken port": "--port {port} cannot be used: Address already in use.",
    "no port": "--port 70000 cannot be used: a port is a number from 0 to 65535.",
}


@pytest.mark.parametrize("wrong", TOLD_FIRST)
def test_a_folder_or_port_that_cannot_be_used_is_reported_first(run, tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(ModelRunner, "__init__", lambda *_: pytest.fail("a model is loaded"))
    folder = tmp_path / "out"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        if wrong == "a file":
            folder.write_text("a file")
        if wrong == "unwritable":
            monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)  # root may write anywhere
        status, said, _ = run("--port", {"a taken port": port, "no port": "70000"}.get(wrong, "0"))
    assert status == 2
    assert TOLD_FIRST[wrong].format(out=folder, port=port) in said
    assert "Traceback" not in said
    assert not folder.is_dir()


def test_a_full_disk_is_one_line_and_leaves_no_incomplete_file(tmp_path, monkeypatch, caplog):
    def full(path, _):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    out = tmp_path / "out"
    assert app.main([*QUICK, "--out", str(out)]) == 2
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "No space left on device" in error.getMessage()
    assert "\n" not in error.getMessage()
    assert not error.exc_info
    assert not list(out.iterdir())


def test_help_needs_nothing_installed():
    done = subprocess.run([sys.executable, "-S", "app.py", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--no-page" in done.stdout
    assert "examples:" in done.stdout
    for names in (SAMPLERS, SCHEDULES):
        assert ", ".join(names) in " ".join(done.stdout.split())


WITHOUT_INSTALLING = "import sys, app; app.DEMO.ensure = lambda: sys.exit('installs'); sys.exit(app.main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--preset", "none"], "preset = 'none' is not possible; allowed: 'Balanced'"),
        (["--model", "README.md"], "README.md cannot be used: it is a .md file"),
        ([], "installs"),
    ],
)
def test_values_are_checked_before_anything_is_installed(options, said):
    command = [sys.executable, "-S", "-c", WITHOUT_INSTALLING, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if options else 1)
