"""Talk to the WebUI: ask for small images, and see what its UNet was given."""

import base64
import io
import json
from dataclasses import dataclass
from functools import cached_property

import httpx
import numpy as np
import pytest
from PIL import Image

NOTHING_PREDICTED = {"ToDo interval": "auto (1)"}  # of the infotext, where a pass is too short for auto
# settings, and (queries, keys) at level 1 of the usual hires pass
FACTOR_2, REDUCED = {"factor_1": 2, "start": 0, "end": 1}, {(256, 64)}
PATIENCE = 300  # seconds for one answer
JSON = {"Content-Type": "application/json"}
# SD.Next's names, and at least four steps that run at this strength
SDNEXT = {"hr_upscaler": "Latent Bilinear", "hr_force": True, "hr_resize_mode": 1, "hr_denoising_strength": 0.7}
REQUEST = {
    "prompt": "a cat",
    "seed": 1,
    "width": 64,
    "height": 64,
    "steps": 4,
    "sampler_name": "Euler",
    "enable_hr": True,
    "hr_scale": 2,
    "hr_upscaler": "Latent",
    "hr_second_pass_steps": 4,
    "denoising_strength": 0.7,
    "hr_additional_modules": ["Use same choices"],  # Forge needs it; the others ignore it
}


class Refused(Exception):
    """The WebUI answered with an HTTP error; ``status`` is its number."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body}")
        self.status, self.body = status, body


class WebUI:
    """A WebUI that runs with --api and the probe."""

    def __init__(self, url):
        self.url = url
        self._baseline = {}
        self._restorable = set()

    def get(self, path):
        return self._ask("GET", path)

    def post(self, path, body=None):
        return self._ask("POST", path, body)

    def _ask(self, method, path, body=None):
        sent = None if body is None else json.dumps(body)  # httpx sends no NaN
        answer = httpx.request(method, self.url + path, content=sent, headers=JSON, timeout=PATIENCE)
        if answer.is_error:
            raise Refused(answer.status_code, answer.text[:400])
        return json.loads(answer.text or "null")  # SD.Next answers an interrupt with nothing

    @cached_property
    def family(self):
        """ "a1111", "forge" or "sdnext"."""
        return self.get("/todo-probe/family")

    @cached_property
    def is_neo(self):
        """Whether this is Forge Neo: alone of its family, it has no latent upscalers."""
        return self.family == "forge" and not self.get("/sdapi/v1/latent-upscale-modes")

    def need_upscaler(self, name):
        """Skip the test where this WebUI has no such upscaler."""
        found = self.get("/sdapi/v1/upscalers") + self.get("/sdapi/v1/latent-upscale-modes")
        if name not in [upscaler["name"] for upscaler in found]:
            pytest.skip(f"this WebUI has no upscaler {name}")

    @property
    def request(self):
        """A small image with hires fix, by an upscaler that this WebUI has."""
        return REQUEST | (SDNEXT if self.family == "sdnext" else {"hr_upscaler": "None"} if self.is_neo else {})

    def left(self):
        """Hooks and patches of the extension on all models, and remembered tensors."""
        return self.get("/todo-probe/left")

    def events(self):
        """What the probe has seen since the last ``start``: one event for each step."""
        return self.get("/todo-probe/events")

    def start(self, happens=None):
        """Forget the events; ``happens`` has events of the contract by the number of a call of the UNet."""
        self.post("/todo-probe/start", happens or {})

    def txt2img(self, todo=None, *, args=None, **request):
        """An image with hires fix; ``todo`` are named settings, ``args`` the positional list; neither: a baseline.

        ``happens``, here and in ``img2img``, is that of ``start``.
        """
        return self._generate("txt2img", {**self.request, **request}, todo, args)

    def img2img(self, image, todo=None, **request):
        """The same image sent through img2img."""
        whole = {name: value for name, value in REQUEST.items() if name != "enable_hr" and not name.startswith("hr_")}
        return self._generate("img2img", {**whole, "init_images": [image], **request}, todo, None)

    def script_of_img2img(self, name, chosen):
        """The fields of a request that runs a script of img2img; ``chosen`` has values by label, the rest is default.

        The WebUIs order the arguments of a script in different ways.
        """
        (script,) = (s for s in self.get("/sdapi/v1/script-info") if s["name"] == name.lower() and s["is_img2img"])
        labels = [(arg["label"] or "").lower() for arg in script["args"]]
        assert {label.lower() for label in chosen} <= set(labels), labels
        values = dict(zip(labels, (arg["value"] for arg in script["args"]), strict=True))
        values |= {label.lower(): value for label, value in chosen.items()}
        return {"script_name": name, "script_args": [values[label] for label in labels]}

    def baseline(self, **request):
        """``txt2img`` without ToDo, remembered: equal requests give equal images, which a test shows."""
        key = json.dumps(request, sort_keys=True)
        if key not in self._baseline:
            self._baseline[key] = self.txt2img(**request)
            assert self._baseline[key].pixels.std() > 5, "the image is black or flat: two of them are always equal"
        return self._baseline[key]

    def _generate(self, route, request, todo, args):
        self._make_restorable(request.get("override_settings", {}))
        if todo is not None or args is not None:
            ours = {"ToDo": {"args": [todo] if args is None else args}}
            request = {**request, "alwayson_scripts": ours | request.get("alwayson_scripts", {})}
        self.start(request.pop("happens", {}))
        answer = self.post(f"/sdapi/v1/{route}", request)
        return Result(answer["images"], json.loads(answer["info"] or "{}"), self.events())

    def _make_restorable(self, options):
        """Give the WebUI a value to go back to: it keeps an overridden option that has never been set."""
        new = set(options) - self._restorable
        if new:
            current = self.get("/sdapi/v1/options")
            if new - set(current):
                pytest.skip(f"this WebUI has no option {', '.join(sorted(new - set(current)))}")
            self.post("/sdapi/v1/options", {name: current[name] for name in new})
            self._restorable |= new


@dataclass
class Result:
    """An answer of the WebUI, and the probe's events: one for each step of each pass."""

    base64_images: list
    info: dict
    events: list

    @cached_property
    def pictures(self):
        """Each (height, width, 3), whole numbers; a grid has a size of its own."""
        decoded = [Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB") for image in self.base64_images]
        return [np.asarray(image).astype(int) for image in decoded]

    @cached_property
    def pixels(self):
        """(images, height, width, 3) of those as large as the first one."""
        return np.stack([picture for picture in self.pictures if picture.shape == self.pictures[0].shape])

    @property
    def infotext(self):
        return self.info["infotexts"][0]

    @property
    def comments(self):
        """What ToDo tells the user."""
        return self.info.get("comments") or ""

    @property
    def first(self):
        return [event for event in self.events if not event["hires"]]

    @property
    def hires(self):
        return [event for event in self.events if event["hires"]]

    @property
    def calls(self):
        """The calls of all UNets and ControlNets."""
        return [call for event in self.events for call in event["calls"]]

    @property
    def hooks_left(self):
        """Most hooks of ours that were on any model as a step began."""
        return max((event["hooks_before"] for event in self.events), default=0)


def lengths(events):
    """The different (queries, keys) of self-attention in these steps."""
    return {tuple(pair) for event in events for call in event["calls"] for pair in call["lengths"]}


def latents(events):
    """What the sampler gave to each of these steps."""
    return [event["latent"] for event in events]


def reduced(events):
    """Those of them with fewer keys than queries."""
    return {(queries, keys) for queries, keys in lengths(events) if keys < queries}


def level_1(events):
    """The number of queries at the finest attention in these steps."""
    return max(queries for queries, _ in lengths(events))


def todo_keys(infotext):
    """The ToDo part of an infotext: its keys and values, without the version, which always stands there."""
    parts = [part.strip() for part in infotext.splitlines()[-1].split(",")]
    return dict(
        part.split(": ", 1) for part in parts if part.startswith("ToDo") and not part.startswith("ToDo version")
    )


def assert_reduced(webui, todo=FACTOR_2, hires=REDUCED, first=frozenset(), *, told=(), differs=False, **request):
    """One image: what each pass reduces, what the user is told. The rest is as without ToDo, the next image too.

    ``hires`` None: something of it. ``differs``: although nothing is reduced.
    """
    plain, result = webui.baseline(**request), webui.txt2img(todo, **request)
    assert reduced(result.first) == (first or reduced(plain.first))
    if hires is None:
        assert lengths(result.hires) != lengths(plain.hires), result.comments
    else:
        assert reduced(result.hires) == hires, result.comments
    assert result.hooks_left == 0
    assert result.pixels.std() > 5
    if not first:
        assert (latents(result.first), lengths(result.first)) == (latents(plain.first), lengths(plain.first))
        assert latents(result.hires[:1]) == latents(plain.hires[:1]), "what the first pass hands on"
    assert np.array_equal(result.pixels, plain.pixels) == (not (first or hires or hires is None or differs))
    assert [words for words in told if words not in result.comments] == [], result.comments
    assert np.array_equal(webui.txt2img(**request).pixels, plain.pixels), "an image after it is another one"
    return result
