"""Requests that no client would send. Each must give an image, or an error that the WebUI itself makes."""

import json
import random

from todo_core.settings import SETTINGS

from .helpers import REQUEST, Refused

TEXTS = ("", "auto", "None", "nan", "1e999", "0x10", "ToDo fast", "todo fast", "\x00", "🙂" * 40, "a" * 4000, "<b>")
NUMBERS = (0, -1, 1, 2, 0.5, 1.5, 1e308, -0.0, 2**31, 2**63 - 1, 2**63, 10**400, float("nan"), float("inf"))
TINY = {"width": 64, "height": 64, "steps": 1, "hr_second_pass_steps": 1, "hr_scale": 1.25}


def value_of(draw, depth=0):
    """Any value that JSON can carry, and some that it should not."""
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return draw.choice(TEXTS)
    if kind < 4:
        return draw.choice(NUMBERS)
    if kind < 6:
        return draw.choice((None, True, False))
    many = range(draw.randrange(4))
    if kind == 6:
        return [value_of(draw, depth + 1) for _ in many]
    return {name_of(draw): value_of(draw, depth + 1) for _ in many}


def name_of(draw):
    """The name of a setting, sometimes with a slip, or any text."""
    name = draw.choice([*SETTINGS, "enabled", "preset"])
    slip = draw.randrange(len(name))
    return draw.choice([name, name, name, name[:slip] + name[slip + 1 :], name.upper(), draw.choice(TEXTS)])


def arguments_of(draw):
    """The arguments of the script: mostly a mapping, or a list by position."""
    if draw.random() < 0.3:
        return [value_of(draw) for _ in range(draw.randrange(len(SETTINGS) + 3))]
    return [{name_of(draw): value_of(draw) for _ in range(draw.randint(0, 4))}, *([value_of(draw)] * draw.randrange(2))]


def body_of(draw):
    """A whole request; one in ten runs Compare."""
    body = {**REQUEST, **TINY, "enable_hr": draw.random() < 0.5}
    body["alwayson_scripts"] = {"ToDo": {"args": arguments_of(draw)}}
    if draw.random() < 0.1:
        body |= {"script_name": "ToDo compare", "script_args": [value_of(draw) for _ in range(draw.randrange(5))]}
    return body


class Fuzz:
    """One WebUI under random requests."""

    def __init__(self, webui):
        self.webui = webui

    def body(self, number):
        """Send one; returns its status and what was wrong, or an empty text."""
        status, made, error = 200, None, ""
        try:
            made = self.webui.post("/sdapi/v1/txt2img", body_of(random.Random(number)))
        except Refused as refused:
            status, error = refused.status, str(refused)
        if made and not made["images"] and not json.loads(made["info"]).get("comments"):
            return str(status), "no image and no message"  # Compare refuses bad presets by a message
        left = self.webui.left()[0]
        return str(status), f"{left} hooks left" if left else error
