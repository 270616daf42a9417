"""Run many random generations on a real WebUI and check that each leaves nothing behind.

    python -m tests.webui.soak --webui FOLDER --checkpoints A,B --jobs 2000 --rows soak.csv
    python -m tests.webui.soak --webui FOLDER --checkpoints A,B --bodies 10000 --rows fuzz.csv

``--jobs`` draws settings, samplers, sizes, interrupts, skips, faults, checkpoints and Reload UI. ``--bodies`` sends
requests that no client would send. The rows say what each did; the last lines sum up. It exits with 1 if something is
wrong.
"""

import argparse
import csv
import random
import re
import sys
import tempfile
import time
import urllib.error
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from todo_core.settings import SETTINGS

from . import server
from .fuzz import Fuzz
from .helpers import Refused, WebUI, reduced, todo_keys

SAMPLERS = ("Euler", "Euler a", "DPM++ 2M", "Heun", "DPM++ SDE", "LCM")
KINDS = {"txt2img": 70, "img2img": 10, "baseline": 8, "interrupt": 4, "skip": 3, "attention": 2, "reduction": 2}
RELOAD_EVERY, SWITCH_SHARE, MEMORY_EVERY = 100, 0.03, 10
OUR_FILE = re.compile(r'^ *File "[^"]*/todo_core/', re.MULTILINE)  # messages of ours may follow a traceback


def settings_of(draw):
    """Valid settings with a value for some of the fields; the few pairs that may not go together stay as drawn."""
    chosen = {}
    for name in draw.sample(sorted(SETTINGS), draw.randint(0, 6)):
        setting = SETTINGS[name]
        if setting.kind == "choice":
            chosen[name] = draw.choice(setting.choices)
        elif setting.kind == "flag":
            chosen[name] = draw.random() < 0.5
        elif setting.kind == "factor":
            chosen[name] = draw.choice(["auto", 1, 2, 3, 4])
        elif setting.kind == "integer":
            chosen[name] = draw.randint(2, 4)
        else:
            chosen[name] = round(draw.uniform(0, 0.6), 2)
    if chosen.get("end", 1) <= chosen.get("start", 0):
        chosen.pop("start", None)
        chosen.pop("end", None)
    return {"factor_1": 2, **chosen}


def request_of(draw):
    """A small request: 64 to 128 pixels, one or two images."""
    return {
        "width": draw.choice([64, 72, 128]),
        "height": draw.choice([64, 120]),
        "steps": draw.randint(1, 3),
        "hr_second_pass_steps": draw.randint(1, 6),  # from 4 on the interval predicts
        "hr_scale": draw.choice([1.5, 2]),
        "batch_size": draw.choice([1, 1, 2]),
        "seed": draw.randint(0, 2**31),
        "sampler_name": draw.choice(SAMPLERS),
    }


class Soak:
    """One WebUI under random jobs."""

    def __init__(self, webui, checkpoints):
        self.webui, self.checkpoints, self.first, self.image = webui, checkpoints, {}, None

    def job(self, number):
        """One random job; returns its kind and what was wrong, or an empty text."""
        draw = random.Random(number)
        if number % RELOAD_EVERY == RELOAD_EVERY - 1:
            return "reload", self._reload()
        if draw.random() < SWITCH_SHARE:
            self.webui.post("/sdapi/v1/options", {"sd_model_checkpoint": draw.choice(self.checkpoints)})
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        return kind, getattr(self, f"_{kind}")(draw) or self._left()

    def _left(self):
        hooks, changed = self.webui.hooks(), self.webui.options()[1]
        return f"{hooks} hooks left, {changed} steps changed the patcher" if hooks or changed else ""

    def _txt2img(self, draw):
        settings = settings_of(draw)
        return _wrong(self.webui.txt2img(settings, **request_of(draw)), settings)

    def _img2img(self, draw):
        if self.image is None:
            self.image = self.webui.txt2img(enable_hr=False, steps=2).base64_images[0]
        request = {name: value for name, value in request_of(draw).items() if not name.startswith("hr_")}
        settings = settings_of(draw)
        return _wrong(self.webui.img2img(self.image, settings, **request), settings)

    def _baseline(self, draw):
        result = self.webui.txt2img(width=64, height=64, steps=2, hr_second_pass_steps=2)
        before = self.first.setdefault(self.webui.get("/sdapi/v1/options")["sd_model_checkpoint"], result.pixels)
        return "" if (result.pixels == before).all() else "the baseline is another image"

    def _interrupt(self, draw, button="interrupt"):
        request = {**request_of(draw), "sampler_name": "Euler"}
        step = draw.randrange(request["steps"] + request["hr_second_pass_steps"])
        result = self.webui.interrupted_at(step, settings_of(draw), button, **request)
        return "hooks between steps" if result.hooks_left else ""

    def _skip(self, draw):
        return self._interrupt(draw, "skip")

    def _attention(self, draw):
        return self._fault(draw, "attention")

    def _reduction(self, draw):
        return self._fault(draw, "reduction")

    def _fault(self, draw, kind):
        request = {**request_of(draw), "sampler_name": "Euler"}
        self.webui.fault(kind, request["steps"])
        try:
            result = self.webui.txt2img(settings_of(draw), **request)
        except Refused as error:
            return "" if kind == "attention" and "asked to fail" in str(error) else str(error)
        return "" if kind == "reduction" and result.pixels.std() > 5 else "the fault of the UNet was lost"

    def _reload(self):
        before, patience = self.webui.get("/todo-probe/born"), time.monotonic() + server.PATIENCE
        self.webui.post("/todo-probe/reload")
        while self._born() in (None, before):  # the old server answers for a moment
            if time.monotonic() > patience:
                raise TimeoutError("the WebUI's server did not end, or did not come back")
            time.sleep(0.2)
        callbacks = [file for file in self.webui.get("/todo-probe/callbacks") if file.endswith("todo.py")]
        return "" if len(callbacks) == 1 else f"{len(callbacks)} callbacks after Reload UI"

    def _born(self):
        """When the WebUI loaded its scripts; None while it does so."""
        try:
            return self.webui.get("/todo-probe/born")
        except (urllib.error.URLError, ConnectionError, Refused):
            return None


def _wrong(result, settings):
    """What does not fit in a finished job, or an empty text."""
    told, keys = "ToDo reduced the" in result.comments, todo_keys(result.infotext)
    attentions = {len(call["lengths"]) for event in result.events for call in event["calls"]}
    seen = bool(reduced(result.events)) or len(attentions) > 1  # those of predicted transformers do not run
    if result.pixels.std() <= 5:
        return "a flat image"
    if result.hooks_left:
        return "hooks between steps"
    if "ToDo" not in result.comments or "stopped in" in result.comments:
        return f"the comment is {result.comments!r}"
    if told != bool(keys) or (told != seen and settings.get("target") != "all"):
        return f"{result.comments!r} beside the infotext {keys} and {reduced(result.events)}"
    return ""


def run(webui, one, count, first, rows):
    """Call ``one(number)`` for each number; write a row for each; return how many of what kind, and the troubles."""
    kinds, troubles, memory = Counter(), Counter(), []
    with rows.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "kind", "seconds", "memory_mib", "trouble"])
        for number in range(first, first + count):
            begun = time.monotonic()
            try:
                kind, trouble = one(number)
            except Exception as error:  # one lost job must not end the others
                kind, trouble = "lost", f"{type(error).__name__}: {error}"[:500]
            if not memory or number % MEMORY_EVERY == 0:  # it gives back what the next job takes again
                memory.append(webui.get("/todo-probe/memory"))
            kinds[kind] += 1
            troubles[trouble] += bool(trouble)
            writer.writerow([number, kind, f"{time.monotonic() - begun:.2f}", round(memory[-1]), trouble])
            file.flush()
    return kinds, +troubles, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--webui", type=Path, required=True, help="the folder of a WebUI")
    parser.add_argument("--webui-python", type=Path, help="python that starts it (default: FOLDER/venv/bin/python)")
    parser.add_argument("--webui-args", default="--api", help="flags of its launch.py")
    parser.add_argument("--checkpoints", required=True, help="names, separated by commas; the first one starts")
    parser.add_argument("--jobs", type=int, help="random generations")
    parser.add_argument("--bodies", type=int, help="random requests, most of them invalid")
    parser.add_argument("--first", type=int, default=0, help="number and seed of the first")
    parser.add_argument("--rows", type=Path, required=True, help="a CSV to write")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = Path(folder) / "webui.log"
        started = server.started(chosen.webui.resolve(), chosen.webui_python, chosen.webui_args, log)
        webui, names = WebUI(stack.enter_context(started)), chosen.checkpoints.split(",")
        webui.txt2img(enable_hr=False)  # a choice of checkpoint while the first one loads leaves a model without data
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": names[0]})
        one, count = (Soak(webui, names).job, chosen.jobs) if chosen.jobs else (Fuzz(webui).body, chosen.bodies)
        kinds, troubles, memory = run(webui, one, count, chosen.first, chosen.rows)
        tracebacks = log.read_text(errors="replace").split("Traceback (most recent call last)")[1:]
    tenth = memory[len(memory) // 10]
    print(dict(kinds))
    print(f"memory: {tenth:.0f} MiB after a tenth, {memory[-1]:.0f} at the end, {max(memory):.0f} at most")
    ours = sum(bool(OUR_FILE.search(traceback)) for traceback in tracebacks)
    print(f"the WebUI's log has {len(tracebacks)} tracebacks, {ours} of them with this extension")
    for trouble, times in troubles.most_common(30):
        print(f"{times} x {trouble}")
    return bool(troubles)


if __name__ == "__main__":
    sys.exit(main())
