"""Measure time and image difference over prompts, seeds and settings: ``python -m todo_lab evaluate FOLDER``.

Every variant makes the same pictures. The report compares each with the baseline, the picture without reduction.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import math
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from todo_core.errors import SettingsError

from ..command_line import USAGE_ERROR
from ..environment import INTERRUPTED
from ..sampling.request import SAMPLERS, Request
from .prompts.prompt_sets import SETS, evenly_spaced, load_prompts
from .running.jobs import Job, make_jobs, make_scenes
from .running.joining import join_results
from .variants import Variant, from_grid, from_peer, from_presets, requests_of_grid, unique_variants

log = logging.getLogger(__name__)
ENGINES = ("local", "processes", "ray")
REPORT_PACKAGES = ("pandas", "pyarrow", "scipy", "matplotlib", "adjustText")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("out", type=Path, metavar="FOLDER", help="folder for the rows, the images and the report")
    _add_sources(parser)
    _add_work(parser)
    run = parser.add_argument_group("the run")
    run.add_argument("--runs", type=int, default=2, help="runs per image (%(default)s); 2 or more test repeatability")
    run.add_argument(
        "--resume", action="store_true", help="continue the results in the folder, also with more variants"
    )
    run.add_argument("--retry-failed", action="store_true", help="with --resume: repeat failed rows")
    run.add_argument("--report-only", action="store_true", help="only write the report of the results in the folder")
    run.add_argument(
        "--join", nargs="+", type=Path, metavar="RESULTS", help="only write one report of these folders of results"
    )
    run.add_argument("--no-report", action="store_true", help="write rows and images only")
    run.add_argument("--untimed", action="store_true", help="count multiplications in place of times")
    run.add_argument("--time-limit", type=float, default=math.inf, metavar="SECONDS", help="stop after so many seconds")
    run.add_argument("--engine", choices=ENGINES, default="local", help="ray: use a Ray cluster or start one")
    run.add_argument("--processes", type=int, default=os.cpu_count(), help="with that engine: how many (%(default)s)")
    run.add_argument("--cores", type=int, help="cores per Ray worker; else the threads of torch in a process")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("the model")
    source.add_argument(
        "--model", default="pocket", help="pocket (default), a .safetensors checkpoint, or a diffusers folder"
    )
    source.add_argument("--weights", metavar="FILE", help="other weights of the pocket model")
    source.add_argument("--webui", metavar="URL", help="measure a running WebUI with --api and this extension instead")
    source.add_argument("--upscaler", help="the WebUI's hires upscaler; default: Latent (bicubic antialiased)")
    source.add_argument("--device", help="default: cuda if available")
    source.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="default: float16 on cuda")
    source.add_argument(
        "--peer", metavar="NAME[=PATH]", action="append", default=[], help="another implementation from its checkout"
    )


def _add_work(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("the images")
    work.add_argument("--prompts", help=f"{' or '.join(SETS)}, or a file; default: the set for the model")
    work.add_argument("--limit", type=int, metavar="N", help="use only N of the prompts, evenly from first to last")
    work.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED", help="of each prompt (default: 1)")
    work.add_argument("--presets", nargs="+", default=None, metavar="NAME", help='names of presets, or "all"')
    work.add_argument("--grid", type=Path, metavar="FILE", help="YAML: presets, settings and peers")
    work.add_argument("--sizes", nargs="+", default=None, metavar="WxH", help="of the first pass, in pixels")
    work.add_argument(
        "--hires", type=float, nargs="+", default=[2.0], metavar="SCALE", help="of the hires pass (default: 2)"
    )
    work.add_argument("--steps", type=int, default=Request.steps, help="of the first pass (%(default)s)")
    work.add_argument("--hires-steps", type=int, default=Request.hires_steps, help="of the hires pass (%(default)s)")
    work.add_argument("--denoising", type=float, default=Request.denoising, help="of the hires pass (%(default)s)")
    work.add_argument("--guidance", type=float, help=f"default: {Request.guidance} on the pocket model, else 7.5")
    work.add_argument("--sampler", choices=SAMPLERS, default=Request.sampler, help="of both passes (%(default)s)")
    work.add_argument("--negative", default="", metavar="TEXT", help="negative prompt of all images")


@dataclass(frozen=True)
class Work:
    """The jobs, and the checkout of each peer."""

    jobs: list[Job]
    peers: dict[str, str]


def plan_work(options: argparse.Namespace) -> Work:
    """The jobs of the options. Raises SettingsError."""
    is_pocket = options.model == "pocket" and not options.webui
    base = Request(
        prompt="",
        negative=options.negative,
        steps=options.steps,
        hires_steps=options.hires_steps,
        denoising=options.denoising,
        guidance=options.guidance or (Request.guidance if is_pocket else 7.5),
        sampler=options.sampler,
    )
    prompts = evenly_spaced(load_prompts(options.prompts or ("pocket" if is_pocket else "checkpoint")), options.limit)
    sizes = [_size(text) for text in options.sizes or (["128x128"] if is_pocket else ["512x512"])]
    peers = dict(_peer(text) for text in options.peer)
    changes = requests_of_grid(options.grid) if options.grid else [{}]
    scenes = make_scenes(prompts, seeds=options.seeds, sizes=sizes, scales=options.hires, base=base, changes=changes)
    if is_pocket:
        from ..pocket.model.pocket_model import Pocket

        for scene in scenes:
            scene.request.check_sizes(Pocket.multiple)
    return Work(make_jobs(scenes, _variants(options, peers)), peers)


def run(options: argparse.Namespace) -> int:
    """Run the evaluation; returns the exit status. Ctrl+C and a full disk keep the finished rows."""
    from .backends.webui import WebUIError

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if options.join:
            join_results(options.join, options.out)
        return _report(options.out) if options.report_only or options.join else _run(options)
    except (ValueError, OSError, WebUIError) as error:  # SettingsError and ModelError are ValueErrors
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR


def _require(options: argparse.Namespace) -> None:
    """Raise ModuleNotFoundError now for a package that the run would miss after its images."""
    for name in ("yaml",) * bool(options.grid) + REPORT_PACKAGES * (not options.no_report):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _run(options: argparse.Namespace) -> int:
    from .metrics.image_metrics import ImageMetrics
    from .running.row_store import RowStore
    from .running.runner import local_engine, run_jobs

    _require(options)
    work, source = plan_work(options), _source(options)
    metrics = ImageMetrics(source.device)
    if source.webui:
        source.open()  # fails before the folder is made if the WebUI does not answer
    about = _about(options, source, metrics.missing)
    RowStore.check(options.out, work.jobs, about, resume=options.resume)  # before the model, which can take long
    how = {"runs": options.runs, "timed": not options.untimed}
    if options.engine == "ray":
        from .running.ray_engine import ray_engine

        engine = ray_engine(source, cores=options.cores, **how)
    elif options.engine == "processes":
        from .running.process_engine import process_engine

        engine = process_engine(source, processes=options.processes, **how)
    else:
        engine = local_engine(source.open(), metrics=metrics, **how)
    # only now: a model that cannot be loaded leaves no folder
    store = RowStore.begin(options.out, work.jobs, about, resume=options.resume)
    try:
        failed = run_jobs(work.jobs, store, engine, retry_failed=options.retry_failed, seconds=options.time_limit)
    except (KeyboardInterrupt, OSError) as error:
        reason = f"Stopped ({error})" if isinstance(error, OSError) else "Stopped"
        rows = f"{len(store.done())} of {len(work.jobs)} rows are in {options.out}"
        sys.stderr.write(f"{reason}: {rows}; --resume continues.\n")
        return USAGE_ERROR if isinstance(error, OSError) else INTERRUPTED
    if failed:
        log.warning("%d rows failed; the report lists their errors", failed)
    return 0 if options.no_report else _report(options.out)


def _report(folder: Path) -> int:
    from .report.report import write_report

    write_report(folder)
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
        cores=options.cores or (1 if options.engine == "processes" else None),
        weights=options.weights,
        counts=options.untimed,
        peers=dict(_peer(text) for text in options.peer),
    )


def _variants(options: argparse.Namespace, peers: dict[str, str]) -> list[Variant]:
    """The variants of presets, grid and peers. The default is all presets, or none with a grid."""
    from .backends.peers import DEFAULTS

    presets = options.presets if options.presets is not None else ([] if options.grid else ["all"])
    found = [*from_presets(presets), *(from_grid(options.grid) if options.grid else [])]
    without_options = [name for name in peers if name not in {variant.peer for variant in found}]
    defaults = [from_peer(name, options) for name in without_options for options in DEFAULTS.get(name, [{}])]
    return unique_variants([*found, *defaults])


def _peer(text: str) -> tuple[str, str]:
    """Parse NAME=PATH, or NAME of an installed one."""
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
    """What the report says about the run. A resumed run must have the same model and number of runs."""
    import torch

    import todo_core

    versions = {"torch": torch.__version__, "todo_core": todo_core.__version__, "python": platform.python_version()}
    cores = torch.get_num_threads() if not source.cores else source.cores
    processor = torch.cuda.get_device_name() if source.device.startswith("cuda") else f"torch on {cores} cores"
    machine = {"device": source.device, "dtype": source.dtype}
    machine["machine"] = f"{platform.system()} {platform.machine()}, {processor}"
    return {
        "runs": options.runs,
        "model": source.webui or source.model,
        **({} if source.webui else machine),  # a WebUI can run on another machine
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "command": "python -m todo_lab evaluate " + shlex.join(_without_folders(options.words[1:])),
        "missing": missing,
    }


def _without_folders(words: list[str]) -> list[str]:
    """The words of the command, with paths shortened to their names."""
    return [
        word.partition("=")[0] + "=..."
        if "=" in word
        else Path(word).name
        if "/" in word and "://" not in word
        else word
        for word in words
    ]
