"""A ComfyUI that is asked through its API: graphs in, images and what the probe saw out."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

import numpy as np

PATIENCE = 300  # seconds for one graph


class Graph(dict):
    """A graph in the API's form. Calling it adds a node and returns its outputs: ``graph("Node", input=value)[0]``."""

    def __call__(self, kind: str, **inputs: Any) -> list[list[Any]]:
        name = str(len(self) + 1)
        self[name] = {"class_type": kind, "inputs": inputs}
        return [[name, i] for i in range(3)]


class Result:
    """What a run gave: the latents of all its samplings, and what the probe saw."""

    def __init__(self, entry: dict[str, Any], seen: list[dict[str, Any]]) -> None:
        self.entry, self.seen = entry, seen
        shown = [latent for output in entry["outputs"].values() for latent in output.get("latents", [])]
        self.latents = [np.array(latent) for latent in shown]  # each (c, h, w)

    @property
    def ok(self) -> bool:
        return self.entry["status"]["status_str"] == "success"

    @property
    def error(self) -> str:
        kinds = dict(self.entry["status"]["messages"])
        return kinds.get("execution_error", {}).get("exception_message", "")

    def lengths(self, sampling: int = 0) -> list[set[tuple[int, int]]]:
        """For each UNet call of a sampling, the (queries, keys) that its self-attentions had."""
        return [{tuple(pair) for pair in call["lengths"]} for call in self.seen[sampling]["calls"]]

    def transformers(self, sampling: int = 0) -> list[int]:
        """For each UNet call of a sampling, how many spatial transformers ran."""
        return [call["transformers"] for call in self.seen[sampling]["calls"]]


class ComfyUI:
    """The program at a URL."""

    def __init__(self, url: str, checkpoint: str | None = None) -> None:
        self.url = url.rstrip("/")
        names = self.get("/object_info/CheckpointLoaderSimple")["CheckpointLoaderSimple"]["input"]["required"]
        self.checkpoint = checkpoint or names["ckpt_name"][0][0]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def start(self, graph: Graph) -> str:
        status, answer = self.post("/prompt", {"prompt": graph})
        assert status == 200, answer
        return answer["prompt_id"]

    def finish(self, prompt: str) -> Result:
        until = time.monotonic() + PATIENCE
        while prompt not in (history := self.get(f"/history/{prompt}")):
            assert time.monotonic() < until, "the graph did not end"
            time.sleep(0.1)
        return Result(history[prompt], self.get("/todo-probe/seen"))

    def run(self, graph: Graph) -> Result:
        self.get("/todo-probe/seen")
        return self.finish(self.start(graph))

    def left(self) -> dict[str, int]:
        return self.get("/todo-probe/left")


def new_seed() -> int:
    """ComfyUI keeps the outputs of nodes whose inputs are known: with an old seed nothing would run."""
    return time.time_ns() // 1000 % 2**40


def text_to_image(
    comfyui: ComfyUI,
    *,
    seed: int,
    size: tuple[int, int] = (128, 128),
    batch: int = 1,
    steps: int = 4,
    sampler: str = "euler",
    cfg: float = 5.0,
    denoise: float = 1.0,
    todo: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    before: Any = None,
    after: Any = None,
    conditions: Any = None,
    probe: dict[str, Any] | None = None,
) -> Graph:
    """A graph of one sampling. ``todo`` has values of the node, None leaves it out; ``settings`` of the second node.

    ``before`` and ``after`` add nodes to the model before and after ToDo; ``conditions`` changes both conditions.
    """
    graph = Graph()
    model, clip, _ = graph("CheckpointLoaderSimple", ckpt_name=comfyui.checkpoint)
    model = before(graph, model) if before else model
    if todo is not None:
        model = add_todo(graph, model, todo, settings)
    model = after(graph, model) if after else model
    positive, negative = (graph("CLIPTextEncode", clip=clip, text=text)[0] for text in ("a red house", ""))
    if conditions:
        positive, negative = conditions(graph, positive, negative)
    options = {"seed": seed, "steps": steps, "cfg": cfg, "sampler_name": sampler, "denoise": denoise}
    sample(graph, model, positive, negative, size, batch, options, probe)
    return graph


def add_todo(graph: Graph, model: Any, todo: dict[str, Any], settings: dict[str, Any] | None = None) -> Any:
    values = {"preset": "ToDo balanced", "factor_1": "2", "interval": "1", "start": 0.0, "end": 1.0} | todo
    if settings is not None:
        values["settings"] = graph("ToDoSettings", **(DEFAULTS | settings))[0]
    return graph("ToDo", model=model, **values)[0]


def sample(graph: Graph, model, positive, negative, size, batch, options, probe=None, *, latent=None) -> Any:
    """Add a sampler and what tells its latent; returns the sampler's latent."""
    watch = {"name": "", "delay": 0.0, "fail_at": -1} | (probe or {})
    model = graph("ToDoProbeWatch", model=model, **watch)[0]
    width, height = size
    empty = latent or graph("EmptyLatentImage", width=width, height=height, batch_size=batch)[0]
    wired = {"model": model, "positive": positive, "negative": negative, "latent_image": empty}
    latent = graph("KSampler", **wired, scheduler="normal", **({"denoise": 1.0} | options))[0]
    graph("ToDoProbeShow", samples=latent)
    return latent


DEFAULTS: dict[str, Any] = {
    "method": "downsample",
    "target": "keys/values",
    "factor_2": "auto",
    "ratio_1": 0.5,
    "ratio_2": 0.0,
    "resample": "nearest-exact",
    "phase": "rotate",
    "window": "steps",
    "afterwards": "none",
    "sx": 2,
    "sy": 2,
    "random": True,
    "seed": -1,
    "attn": True,
    "crossattn": False,
    "mlp": False,
    "predict": "deep",
    "tolerance": 0.08,
}
"""The inputs of the node ToDo settings: the API has no defaults for required ones."""
