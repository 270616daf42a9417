"""Run many random generations on a real WebUI and check that each leaves nothing behind.

    python -m tests.webui.soak --webui FOLDER --checkpoints A,B --jobs 2000 --rows soak.csv
    python -m tests.webui.soak --webui FOLDER --checkpoints A,B --bodies 10000 --rows fuzz.csv

``--jobs`` draws settings, samplers, sizes, interrupts, skips, faults, checkpoints and Reload UI. ``--bodies`` sends
requests that no client would send. The rows say what each did; the last lines sum up. It exits with 1 if something is
wrong. A WebUI that hangs in Reload UI, or ends, is started anew. Each start has a log beside the rows.
"""

import argparse
import csv
import random
import re
import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from todo_core.settings import SETTINGS

from . import server
from .fuzz import Fuzz
from .helpers import Refused, WebUI, reduced, todo_keys

SAMPLERS = ("Euler", "Euler a", "DPM++ 2M", "Heun", "DPM++ SDE", "LCM")
KINDS = {"txt2img": 70, "img2img": 10, "baseline": 8, "cancel": 4, "skip": 3, "fail": 2, "ours": 2}
RELOAD_EVERY, SWITCH_SHARE, MEMORY_EVERY = 100, 0.03, 10
RELOAD_PATIENCE = 180  # seconds
STARTED, TRACEBACK, STACKS = "Startup time:", "Traceback (most recent call last)", "Fatal Python error: Aborted"
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
        elif setting.kind in ("integer", "seed"):
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


class Host:
    """The WebUI of a folder, which can be started anew; each start has a log of its own."""

    def __init__(self, stack, start, rows, checkpoint):
        self._stack, self._start, self._rows, self._checkpoint = stack, start, rows, checkpoint
        self.logs, self.webui = [], WebUI("")
        self.start()

    def start(self):
        self._stack.close()
        self.logs.append(self._rows.with_suffix(f".{len(self.logs)}.log"))
        self.webui.url, self._process = self._stack.enter_context(self._start(self.logs[-1]))
        self.webui.txt2img(enable_hr=False)  # a choice of checkpoint while the first one loads leaves it without data
        self.webui.post("/sdapi/v1/options", {"sd_model_checkpoint": self._checkpoint})

    def start_again(self):
        """In place of one that hangs or has ended; returns whether it was in code of this extension at last."""
        server.end_with_stacks(self._process)
        last = re.split(f"{re.escape(TRACEBACK)}|{STACKS}", self.text())[-1]
        self.start()
        return bool(OUR_FILE.search(last))

    def has_ended(self):
        return self._process.poll() is not None

    def text(self):
        """What the present one has logged."""
        return self.logs[-1].read_text(errors="replace")

    def reload(self):
        """Reload UI; returns whether the WebUI came back. A request before that would end its start with an error."""
        starts, patience = self.text().count(STARTED), time.monotonic() + RELOAD_PATIENCE
        self.webui.post("/todo-probe/reload")
        while self.text().count(STARTED) == starts:
            if self.has_ended() or time.monotonic() > patience:
                return False
            time.sleep(0.2)
        return True


class Soak:
    """One WebUI under random jobs."""

    def __init__(self, host, checkpoints):
        self.host, self.webui, self.checkpoints, self.first = host, host.webui, checkpoints, {}

    def job(self, number):
        """One random job; returns its kind and what was wrong, or an empty text."""
        draw = random.Random(number)
        if number % RELOAD_EVERY == RELOAD_EVERY - 1:
            return self._reload()
        if draw.random() < SWITCH_SHARE:
            self.webui.post("/sdapi/v1/options", {"sd_model_checkpoint": draw.choice(self.checkpoints)})
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        run = getattr(self, f"_{kind}", partial(self._happens, event=kind))
        return kind, run(draw) or self._left()

    def _left(self):
        left = self.webui.left()
        return "{} hooks left, {} steps changed the patcher, {} tensors left".format(*left) if any(left) else ""

    def _txt2img(self, draw):
        settings = settings_of(draw)
        return _wrong(self.webui.txt2img(settings, **request_of(draw)), settings)

    def _img2img(self, draw):
        image = self.webui.baseline(enable_hr=False).base64_images[0]
        request = {name: value for name, value in request_of(draw).items() if not name.startswith("hr_")}
        settings = settings_of(draw)
        return _wrong(self.webui.img2img(image, settings, **request), settings)

    def _baseline(self, draw):
        result = self.webui.txt2img(width=64, height=64, steps=2, hr_second_pass_steps=2)
        before = self.first.setdefault(self.webui.get("/sdapi/v1/options")["sd_model_checkpoint"], result.pixels)
        return "" if (result.pixels == before).all() else "the baseline is another image"

    def _happens(self, draw, event):
        """A job in whose UNet's call, in any of both passes, something happens."""
        request = {**request_of(draw), "sampler_name": "Euler"}
        last = request["steps"] + request["hr_second_pass_steps"]
        number = draw.randrange(1, last) if event in ("cancel", "skip") else request["steps"]  # which is computed
        try:
            result = self.webui.txt2img(settings_of(draw), happens={number: event}, **request)
        except Refused as error:
            return "" if event == "fail" and "asked to fail" in str(error) else str(error)
        if event == "fail" or result.pixels.std() <= 5:
            return "the fault of the UNet was lost, or a flat image"
        return "hooks between steps" if result.hooks_left else ""

    def _reload(self):
        if not self.host.reload():  # now and then the WebUI's own web server never ends
            kind = "ended in reload" if self.host.has_ended() else "hung reload"
            return kind, f"{kind}, in this extension" if self.host.start_again() else ""
        callbacks = [file for file in self.webui.get("/todo-probe/callbacks") if file.endswith("todo.py")]
        return "reload", "" if len(callbacks) == 1 else f"{len(callbacks)} callbacks after Reload UI"


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


def run(host, one, count, first, rows):
    """Call ``one(number)`` for each number; write a row for each.

    Returns how many of what kind, the troubles, and the memory of each start in MiB.
    """
    kinds, troubles, memory = Counter(), Counter(), {}
    with rows.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "kind", "seconds", "memory_mib", "trouble"])
        for number in range(first, first + count):
            begun = time.monotonic()
            try:
                kind, trouble = one(number)
            except Exception as error:  # one lost job must not end the others
                kind, trouble = "lost", f"{type(error).__name__}: {error}"[:500]
            if host.has_ended():
                kind, trouble = "ended", f"the WebUI has ended; {trouble}"
                host.start_again()
            seen = memory.setdefault(len(host.logs), [])
            if not seen or number % MEMORY_EVERY == 0:  # it gives back what the next job takes again
                seen.append(host.webui.get("/todo-probe/memory"))
            kinds[kind] += 1
            troubles[trouble] += bool(trouble)
            writer.writerow([number, kind, f"{time.monotonic() - begun:.2f}", round(seen[-1]), trouble])
            file.flush()
    return kinds, +troubles, list(memory.values())


def report(kinds, troubles, memory, logs):
    """The last lines."""
    print(dict(kinds))
    for number, seen in enumerate(memory):
        tenth = seen[len(seen) // 10]
        print(
            f"memory, start {number}: {tenth:.0f} MiB after a tenth, {seen[-1]:.0f} at the end, {max(seen):.0f} at most"
        )
    tracebacks = [each for log in logs for each in log.read_text(errors="replace").split(TRACEBACK)[1:]]
    ours = sum(bool(OUR_FILE.search(traceback)) for traceback in tracebacks)
    print(f"the WebUI's logs have {len(tracebacks)} tracebacks, {ours} of them with this extension")
    for trouble, times in troubles.most_common(30):
        print(f"{times} x {trouble}")


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
    start = partial(server.started, chosen.webui.resolve(), chosen.webui_python, chosen.webui_args)
    with ExitStack() as stack:
        names = chosen.checkpoints.split(",")
        host = Host(stack, start, chosen.rows, names[0])
        one, count = (Soak(host, names).job, chosen.jobs) if chosen.jobs else (Fuzz(host.webui).body, chosen.bodies)
        kinds, troubles, memory = run(host, one, count, chosen.first, chosen.rows)
    report(kinds, troubles, memory, host.logs)
    return bool(troubles)


if __name__ == "__main__":
    sys.exit(main())
