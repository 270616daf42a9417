"""``python -m todo_lab evaluate``: time and image difference over prompts, seeds and settings."""

from __future__ import annotations

import argparse
import logging
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError

from ..sampling.request import SAMPLERS, Request
from .prompts.prompt_sets import SETS, load, spread
from .running.jobs import Job, jobs, scenes
from .running.variants import Variant, distinct, of_grid, of_peer, of_presets

log = logging.getLogger(__name__)
ENGINES = ("local", "ray")
INTERRUPTED = 130  # as a shell has it
EXTRA = 'pip install "todo-for-webui[evaluation]"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("out", type=Path, help="folder for the rows, the images and the report")
    _add_sources(parser)
    _add_work(parser)
    run = parser.add_argument_group("the run")
    run.add_argument("--runs", type=int, default=2, help="times that each image is made; two or more show determinism")
    run.add_argument("--resume", action="store_true", help="go on with the results there, also with more settings")
    run.add_argument("--retry-failed", action="store_true", help="with --resume: try the failed rows again")
    run.add_argument("--report-only", action="store_true", help="only write the report of what is in the folder")
    run.add_argument(
        "--engine", choices=ENGINES, default="local", help="ray: on a Ray cluster, or on this machine's own"
    )
    run.add_argument("--cores", type=int, help="cores of a worker; locally those that torch computes on")
    run.add_argument("--clip", metavar="FOLDER", help="a CLIPModel of transformers, for CLIP scores")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("what makes the images")
    source.add_argument(
        "--model", default="pocket", help="pocket (default), a .safetensors checkpoint, or a diffusers folder"
    )
    source.add_argument("--weights", metavar="FILE", help="other weights for the pocket model")
    source.add_argument(
        "--webui", metavar="URL", help="a running WebUI with --api and this extension, instead of a model"
    )
    source.add_argument("--upscaler", help="the WebUI's hires upscaler; default: Latent (bicubic antialiased)")
    source.add_argument("--device", help="default: cuda where there is one")
    source.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="default: float16 on cuda")
    source.add_argument(
        "--peer", metavar="NAME[=PATH]", action="append", default=[], help="another implementation, from its checkout"
    )


def _add_work(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("which images")
    work.add_argument("--prompts", help=f"{' or '.join(SETS)}, or a file with one a line; default: what fits the model")
    work.add_argument("--limit", type=int, metavar="N", help="only so many of the prompts, evenly from first to last")
    work.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    work.add_argument("--presets", nargs="+", default=None, metavar="NAME", help='"all" for every built-in one')
    work.add_argument("--grid", type=Path, metavar="FILE", help="YAML: presets, settings and peers")
    work.add_argument("--sizes", nargs="+", default=None, metavar="WxH", help="of the first pass, in pixels")
    work.add_argument("--hires", type=float, nargs="+", default=[2.0], metavar="SCALE", help="scales of the hires pass")
    work.add_argument("--steps", type=int, default=Request.steps)
    work.add_argument("--hires-steps", type=int, default=Request.hires_steps)
    work.add_argument("--denoising", type=float, default=Request.denoising)
    work.add_argument("--guidance", type=float, help=f"default: {Request.guidance} on the pocket model, else 7.5")
    work.add_argument("--sampler", choices=SAMPLERS, default=Request.sampler)
    work.add_argument("--negative", default="")


@dataclass(frozen=True)
class Work:
    """What the options come to."""

    jobs: list[Job]
    peers: dict[str, str]


def work_of(options: argparse.Namespace) -> Work:
    """The list of jobs. Raises SettingsError."""
    small = options.model == "pocket" and not options.webui
    base = Request(
        prompt="",
        negative=options.negative,
        steps=options.steps,
        hires_steps=options.hires_steps,
        denoising=options.denoising,
        guidance=options.guidance or (Request.guidance if small else 7.5),
        sampler=options.sampler,
    )
    prompts = spread(load(options.prompts or ("pocket" if small else "checkpoint")), options.limit)
    sizes = [_size(text) for text in options.sizes or (["128x128"] if small else ["512x512"])]
    peers = dict(_peer(text) for text in options.peer)
    wanted = scenes(prompts, seeds=options.seeds, sizes=sizes, scales=options.hires, base=base)
    return Work(jobs(wanted, _variants(options, peers)), peers)


def run(options: argparse.Namespace) -> int:
    """Do it; returns the exit status. Ctrl-C keeps what is done."""
    try:
        return _report(options.out) if options.report_only else _run(options)
    except (SettingsError, ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except ImportError as error:
        sys.stderr.write(f"{error}. The evaluation needs: {EXTRA}\n")
        return 2


def _run(options: argparse.Namespace) -> int:
    from .metrics.pretrained_metrics import Learned
    from .running.row_store import Journal
    from .running.runner import local_engine
    from .running.runner import run as sweep

    work, source, learned = work_of(options), _source(options), Learned(options.clip)
    about = _about(options, source, learned.missing)
    journal = Journal.begin(options.out, work.jobs, about, resume=options.resume)
    if options.engine == "ray":
        from .running.ray_engine import ray_engine

        engine = ray_engine(source, runs=options.runs, clip=options.clip, cores=options.cores)
    else:
        engine = local_engine(source.open(), runs=options.runs, learned=learned)
    try:
        failed = sweep(work.jobs, journal, engine, retry_failed=options.retry_failed)
    except KeyboardInterrupt:
        done = len(journal.done())
        sys.stderr.write(f"Stopped: {done} of {len(work.jobs)} rows are in {options.out}; --resume goes on.\n")
        return INTERRUPTED
    if failed:
        log.warning("%d rows failed; the report names their errors", failed)
    return _report(options.out)


def _report(folder: Path) -> int:
    from .report.report import write

    write(folder)
    log.info("written: %s and %s", folder / "report.html", folder / "report.md")
    return 0


def _source(options: argparse.Namespace) -> Any:
    import torch

    from .backends.source import Source
    from .backends.webui import UPSCALER

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Source(
        model=options.model,
        webui=options.webui,
        upscaler=options.upscaler or UPSCALER,
        device=device,
        dtype=options.dtype or ("float16" if device.startswith("cuda") else "float32"),
        cores=options.cores,
        weights=options.weights,
        peers=dict(_peer(text) for text in options.peer),
    )


def _variants(options: argparse.Namespace, peers: dict[str, str]) -> list[Variant]:
    """Those of the grid, and those of the presets: by default all, where no grid is given."""
    from .backends.peers import DEFAULTS

    presets = options.presets if options.presets is not None else ([] if options.grid else ["all"])
    found = [*of_presets(presets), *(of_grid(options.grid) if options.grid else [])]
    untold = [name for name in peers if name not in {variant.peer for variant in found}]
    return distinct([*found, *(of_peer(name, told) for name in untold for told in DEFAULTS.get(name, [{}]))])


def _peer(text: str) -> tuple[str, str]:
    """NAME=PATH, or NAME alone for one that is installed."""
    from .backends.peers import ADAPTERS

    name, _, path = text.partition("=")
    if name not in ADAPTERS or (path and not Path(path).is_dir()):
        raise SettingsError("peer", text, f"NAME=FOLDER with one of the names {', '.join(ADAPTERS)}")
    return name, path


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise SettingsError("sizes", text, "width x height in pixels, such as 512x768")
    return int(width), int(height)


def _about(options: argparse.Namespace, source: Any, missing: dict[str, str]) -> dict[str, Any]:
    """What the report says about the run, and what a resumed one must agree with."""
    import torch

    import todo_core

    names = {"torch": torch.__version__, "todo_core": todo_core.__version__, "python": platform.python_version()}
    cores = torch.get_num_threads() if not source.cores else source.cores
    gpu = torch.cuda.get_device_name() if source.device.startswith("cuda") else f"torch on {cores} cores"
    here = {"device": source.device, "dtype": source.dtype}
    here["machine"] = f"{platform.system()} {platform.machine()}, {gpu}"
    return {
        "runs": options.runs,
        "model": source.webui or source.model,
        **({} if source.webui else here),  # a WebUI may run anywhere
        "versions": ", ".join(f"{name} {version}" for name, version in names.items()),
        "command": "python -m todo_lab evaluate " + shlex.join(_shown(options.given)),
        "missing": missing,
    }


def _shown(given: list[str]) -> list[str]:
    """The command's words, without the folders of this machine: peers and results by their names alone."""
    return [
        word.partition("=")[0] + "=..."
        if "=" in word
        else Path(word).name
        if "/" in word and "://" not in word
        else word
        for word in given
    ]
