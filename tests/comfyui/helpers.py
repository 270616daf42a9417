"""A ComfyUI that is asked through its API: graphs in, images and what the probe saw out."""

import json
import time

import httpx
import numpy as np

from todo_core.comfyui.inputs import MAIN

PATIENCE = 300  # seconds for one graph


class Graph(dict):
    """A graph in the API's form. Calling it adds a node and returns its outputs: ``graph("Node", input=value)[0]``."""

    def __call__(self, kind, **inputs):
        name = str(len(self) + 1)
        self[name] = {"class_type": kind, "inputs": inputs}
        return [[name, i] for i in range(3)]


class Result:
    """What a run gave: the latents of all its samplings, and what the probe saw."""

    def __init__(self, entry, seen, lines):
        self.entry, self.seen, self.lines = entry, seen, lines
        shown = [latent for output in entry["outputs"].values() for latent in output.get("latents", [])]
        self.latents = [np.array(latent) for latent in shown]  # each (c, h, w)

    @property
    def ok(self):
        return self.entry["status"]["status_str"] == "success"

    @property
    def error(self):
        kinds = dict(self.entry["status"]["messages"])
        told = kinds.get("execution_error", {}).get("exception_message", "")
        return told or ("" if self.ok else str([*kinds]))

    def lengths(self):
        """For each UNet call of the first sampling, the (queries, keys) that its self-attentions had."""
        return [{tuple(pair) for pair in call["lengths"]} for call in self.seen[0]["calls"]]

    def level_1(self):
        """For each UNet call of the first sampling, the tokens at level 1 and the keys that are left of them."""
        return [(call["tokens"], call["keys"]) for call in self.seen[0]["calls"]]

    def deep(self):
        """For each UNet call of the first sampling, whether a transformer below level 1 ran."""
        return [call["deep"] for call in self.seen[0]["calls"]]


class ComfyUI:
    """The program at a URL."""

    def __init__(self, url, checkpoint=None):
        self.url = url.rstrip("/")
        names = self.get("/object_info/CheckpointLoaderSimple")["CheckpointLoaderSimple"]["input"]["required"]
        self.checkpoint = checkpoint or names["ckpt_name"][0][0]

    def get(self, path):
        return httpx.get(f"{self.url}{path}", timeout=60).raise_for_status().json()

    def post(self, path, body):
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=60)
        return answer.status_code, answer.json()

    def run(self, graph):
        self.get("/todo-probe/seen")
        status, answer = self.post("/prompt", {"prompt": graph})
        assert status == 200, answer
        prompt, until = answer["prompt_id"], time.monotonic() + PATIENCE
        while prompt not in (history := self.get(f"/history/{prompt}")):
            assert time.monotonic() < until, "the graph did not end"
            time.sleep(0.1)
        return Result(history[prompt], *self.get("/todo-probe/seen"))

    def left(self):
        """Hooks and forwards on models, and remembered tensors."""
        return self.get("/todo-probe/left")


def new_seed():
    """ComfyUI keeps the outputs of nodes whose inputs are known: with an old seed nothing would run."""
    return time.time_ns() // 1000 % 2**40


def text_to_image(
    comfyui, todo=None, *more, seed, size=(64, 64), batch=1, before=None, after=None, conditions=None, name="",
    happens=(), **options
):  # fmt: skip
    """A graph of one sampling for each of ``todo`` and ``more``, the settings or None; each has twice the size.

    ``before`` and ``after`` add nodes to the model before and after ToDo; ``conditions`` changes both conditions.
    Another ``name`` makes an equal graph run again. ``happens`` has the contract's events of each sampling.
    """
    graph, latent = Graph(), None
    loaded, clip, _ = graph("CheckpointLoaderSimple", ckpt_name=comfyui.checkpoint)
    loaded = before(graph, loaded) if before else loaded
    texts = [graph("CLIPTextEncode", clip=clip, text=text)[0] for text in ("a red house", "")]
    texts = conditions(graph, *texts) if conditions else texts
    for i, settings in enumerate((todo, *more)):
        model = loaded if settings is None else add_todo(graph, loaded, settings)
        model = after(graph, model) if after else model
        if latent:
            size = (2 * size[0], 2 * size[1])
            scale = {"upscale_method": "bilinear", "width": size[0], "height": size[1], "crop": "disabled"}
            latent = graph("LatentUpscale", samples=latent, **scale)[0]
        else:
            latent = graph("EmptyLatentImage", width=size[0], height=size[1], batch_size=batch)[0]
        latent = sample(
            graph, model, *texts, latent, f"{name} {i}", happens[i] if happens else {}, seed=seed, **options
        )
    return graph


def add_todo(graph, model, settings):
    """The node ToDo; without a preset, with a node ToDo settings."""
    names = ("preset", *MAIN)
    main = {"preset": "Balanced"} | {key: value for key, value in settings.items() if key in names}
    rest = {key: value for key, value in settings.items() if key not in names}
    if "preset" not in settings:
        main["settings"] = graph("ToDoSettings", **rest)[0]
    return graph("ToDo", model=model, **main)[0]


def sample(graph, model, positive, negative, latent, name, happens, **options):
    """Add a sampler and what tells its latent; returns the sampler's latent."""
    model = graph("ToDoProbeWatch", model=model, name=name, happens=json.dumps(happens))[0]
    wired = {"model": model, "positive": positive, "negative": negative, "latent_image": latent}
    defaults = {"steps": 4, "cfg": 5.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    latent = graph("KSampler", **wired, **(defaults | options))[0]
    graph("ToDoProbeShow", samples=latent)
    return latent
