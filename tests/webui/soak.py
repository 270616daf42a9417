"""Run many random generations on a real WebUI and check that each leaves nothing behind.

    python -m tests.webui.soak --webui URL --checkpoints A,B --jobs 2000

It draws settings, samplers, sizes, interrupts, skips, faults, checkpoints, and requests that no client would send. A
line tells what each did, and the last ones sum up. It exits with 1 if something is wrong.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from functools import partial

from todo_core.settings import SETTINGS

from .helpers import REQUEST, Refused, WebUI, reduced, todo_keys

SAMPLERS = ("Euler", "Euler a", "DPM++ 2M", "Heun", "DPM++ SDE", "LCM")
KINDS = {"txt2img": 70, "img2img": 10, "baseline": 8, "cancel": 4, "skip": 3, "fail": 2, "ours": 2, "body": 30}
SWITCH_SHARE, MEMORY_EVERY = 0.03, 10
# values that no setting should have, or that JSON should not carry
ODD = ("", "auto", "None", "nan", "1e999", "ToDo fast", "\x00", "🙂" * 40, "a" * 4000, "<b>", None, True, [2], {"a": 1})
ODD += (0, -1, 2, 0.5, 1.5, 1e308, -0.0, 2**31, 2**63, 10**400, float("nan"), float("inf"))


def settings_of(draw):
    """Valid settings with a value for some of the fields; the few pairs that may not go together stay as drawn."""
    chosen = {}
    for name in draw.sample(sorted(SETTINGS), draw.randint(0, 6)):
        setting = SETTINGS[name]
        whole = (2, 3, 4)
        values = {"flag": (True, False), "factor": ("auto", 1, *whole), "integer": whole, "seed": whole}
        other = setting.choices or (round(draw.uniform(0, 0.6), 2),)
        chosen[name] = draw.choice(values.get(setting.kind, other))
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


def body_of(draw):
    """A request that no client would send: names with a slip, odd values, lists by position. Some run Compare."""
    names = [*SETTINGS, "enabled", "preset", "factor", "FACTOR_1", ""]
    mapping = {draw.choice(names): draw.choice(ODD) for _ in range(draw.randint(0, 4))}
    by_position = draw.choices(ODD, k=draw.randrange(len(SETTINGS) + 3))
    args = draw.choice([[mapping], [mapping, draw.choice(ODD)], by_position])
    small = {"steps": 1, "hr_second_pass_steps": 1, "hr_scale": 1.25, "enable_hr": draw.random() < 0.5}
    compare = {"script_name": "ToDo compare", "script_args": draw.choices(ODD, k=draw.randrange(5))}
    body = {**REQUEST, **small, "alwayson_scripts": {"ToDo": {"args": args}}}
    return body | compare if draw.random() < 0.1 else body


class Soak:
    """One WebUI under random jobs."""

    def __init__(self, webui, checkpoints):
        self.webui, self.checkpoints, self.first = webui, checkpoints, {}
        webui.txt2img(enable_hr=False)  # a choice of checkpoint while the first one loads leaves it without data
        webui.post("/sdapi/v1/options", {"sd_model_checkpoint": checkpoints[0]})

    def job(self, number):
        """One random job; returns its kind and what was wrong, or an empty text."""
        draw = random.Random(number)
        if draw.random() < SWITCH_SHARE:
            self.webui.post("/sdapi/v1/options", {"sd_model_checkpoint": draw.choice(self.checkpoints)})
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        run = getattr(self, f"_{kind}", partial(self._happens, event=kind))
        return kind, run(draw) or self._left()

    def _left(self):
        left = self.webui.left()
        return "{} hooks left, {} tensors left".format(*left) if any(left) else ""

    def _txt2img(self, draw):
        settings = settings_of(draw)
        return _wrong(self.webui.txt2img(settings, **request_of(draw)), settings)

    def _img2img(self, draw):
        image = self.webui.baseline(enable_hr=False).base64_images[0]
        request = {name: value for name, value in request_of(draw).items() if not name.startswith("hr_")}
        settings = settings_of(draw)
        return _wrong(self.webui.img2img(image, settings, **request), settings)

    def _body(self, draw):
        """It must give an image, or an error that the WebUI itself makes; Compare refuses bad presets by a message."""
        made = self.webui.post("/sdapi/v1/txt2img", body_of(draw))
        is_empty = not made["images"] and not json.loads(made["info"]).get("comments")
        return "no image and no message" if is_empty else ""

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


def run(soak, numbers):
    """Run the job of each number and tell it; returns how many of what kind, the troubles, and the memory in MiB."""
    kinds, troubles, memory = Counter(), Counter(), []
    for number in numbers:
        begun = time.monotonic()
        try:
            kind, trouble = soak.job(number)
        except Exception as error:  # one lost job must not end the others
            kind, trouble = "lost", f"{type(error).__name__}: {error}"[:500]
        if number % MEMORY_EVERY == 0 or not memory:  # it gives back what the next job takes again
            memory.append(soak.webui.get("/todo-probe/memory"))
        kinds[kind] += 1
        troubles[trouble] += bool(trouble)
        print(f"{number} {kind}, {time.monotonic() - begun:.2f} s, {memory[-1]:.0f} MiB {trouble}", flush=True)
    return kinds, +troubles, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--webui", required=True, metavar="URL", help="a WebUI with --api and the probe")
    parser.add_argument("--checkpoints", required=True, help="names, separated by commas; the first one starts")
    parser.add_argument("--jobs", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number and seed of the first")
    chosen = parser.parse_args()
    soak = Soak(WebUI(chosen.webui.rstrip("/")), chosen.checkpoints.split(","))
    kinds, troubles, memory = run(soak, range(chosen.first, chosen.first + chosen.jobs))
    print(dict(kinds))
    tenth = memory[len(memory) // 10]
    print(f"memory: {tenth:.0f} MiB after a tenth, {memory[-1]:.0f} at the end, {max(memory):.0f} at most")
    for trouble, times in troubles.most_common(30):
        print(f"{times} x {trouble}")
    return bool(troubles)


if __name__ == "__main__":
    sys.exit(main())
