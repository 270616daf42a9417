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
from pathlib import Path
from typing import Any

import torch

import todo_core
from todo_core.errors import SettingsError

from ..command_line import USAGE_ERROR
from ..environment import INTERRUPTED
from ..pocket.model.pocket_model import Pocket
from ..sampling import SAMPLERS, SCHEDULES
from ..sampling.request import Request
from .backends.peers import PEERS
from .backends.source import POCKET, Source
from .metrics.image_metrics import ImageMetrics
from .prompts.prompt_sets import SETS, evenly_spaced, load_prompts
from .running.engines import local_engine, process_engine, ray_engine
from .running.jobs import Job, make_scenes
from .running.row_store import RowStore
from .running.runner import Engine, run_jobs
from .variants import Variant, from_grid, from_peer, from_presets, requests_of_grid, unique_variants

log = logging.getLogger(__name__)
ENGINES = ("local", "processes", "ray")
REPORT_PACKAGES = ("pandas", "pyarrow", "matplotlib")
GUIDANCE = 7.5  # usual for real models
OF_BOTH = ("negative", "steps", "hires_steps", "denoising", "sampler", "schedule")  # options that a request has, too
FLAG = {"action": "store_true"}
OPTIONS: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "the model": [
        ("model", {"default": POCKET}, "pocket (default), a .safetensors checkpoint, or a diffusers folder"),
        ("weights", {"metavar": "FILE"}, "other weights of the pocket model"),
        ("device", {}, "default: cuda if available"),
        ("dtype", {"choices": ("float32", "float16", "bfloat16")}, "default: float16 on cuda"),
        ("peer", {"action": "append", "metavar": "NAME[=PATH]"}, "another implementation from its checkout"),
    ],
    "the images": [
        ("prompts", {}, f"{' or '.join(SETS)}, or a file; default: the set for the model"),
        ("limit", {"type": int, "metavar": "N"}, "use only N of the prompts, evenly from first to last"),
        ("seeds", {"type": int, "nargs": "+", "default": [1], "metavar": "SEED"}, "of each prompt (default: 1)"),
        ("presets", {"nargs": "+", "metavar": "NAME"}, 'names of presets, or "all"'),
        ("grid", {"type": Path, "metavar": "FILE"}, "YAML: presets, settings and peers"),
        ("sizes", {"nargs": "+", "metavar": "WxH"}, "of the first pass, in pixels"),
        ("hires", {"type": float, "nargs": "+", "default": [2.0]}, "scales of the hires pass (default: 2)"),
        ("steps", {"type": int, "default": Request.steps}, "of the first pass (%(default)s)"),
        ("hires-steps", {"type": int, "default": Request.hires_steps}, "of the hires pass (%(default)s)"),
        ("denoising", {"type": float, "default": Request.denoising}, "of the hires pass (%(default)s)"),
        ("guidance", {"type": float}, f"default: {Request.guidance} on the pocket model, else {GUIDANCE}"),
        ("sampler", {"default": Request.sampler}, f"of both passes: {', '.join(SAMPLERS)} (%(default)s)"),
        ("schedule", {"default": Request.schedule}, f"of the sampler: {', '.join(SCHEDULES)} (%(default)s)"),
        ("negative", {"default": "", "metavar": "TEXT"}, "negative prompt of all images"),
    ],
    "the run": [
        ("runs", {"type": int, "default": 2}, "runs per image (%(default)s); 2 or more test repeatability"),
        ("resume", FLAG, "continue the results in the folder, also with more variants; failed rows are repeated"),
        ("report-only", FLAG, "only write the report of the results in the folder"),
        ("no-report", FLAG, "write rows and images only"),
        ("untimed", FLAG, "count multiplications in place of times"),
        ("time-limit", {"type": float, "default": math.inf, "metavar": "SECONDS"}, "stop after so many seconds"),
        ("engine", {"choices": ENGINES, "default": ENGINES[0]}, "ray: use a Ray cluster or start one"),
        ("processes", {"type": int, "default": os.cpu_count()}, "with that engine: how many (%(default)s)"),
        ("cores", {"type": int}, "cores per Ray worker; else the threads of torch in a process"),
    ],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("out", type=Path, metavar="FOLDER", help="folder for the rows, the images and the report")
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, how, text in options:
            group.add_argument(f"--{name}", help=text, **how)


def plan_jobs(options: argparse.Namespace) -> list[Job]:
    """The jobs of the options. Raises SettingsError."""
    for name in ("limit", "runs", "processes"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise SettingsError(name, getattr(options, name), "1 or more")
    is_pocket = options.model == POCKET
    base = Request(
        prompt="",
        guidance=options.guidance or (Request.guidance if is_pocket else GUIDANCE),
        **{name: getattr(options, name) for name in OF_BOTH},
    )
    prompts = evenly_spaced(load_prompts(options.prompts or ("pocket" if is_pocket else "checkpoint")), options.limit)
    sizes = [_size(text) for text in options.sizes or (["128x128"] if is_pocket else ["512x512"])]
    changes = requests_of_grid(options.grid) if options.grid else [{}]
    variants = _variants(options)
    scenes = make_scenes(prompts, seeds=options.seeds, sizes=sizes, scales=options.hires, base=base, changes=changes)
    for scene in scenes if is_pocket else ():
        scene.request.check_sizes(Pocket.multiple)
    return [Job(scene, variant) for scene in scenes for variant in variants]


def run(options: argparse.Namespace) -> int:
    """Run the evaluation; returns the exit status, 1 if rows failed. Ctrl+C and a full disk keep the finished rows."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        return _report(options.out) if options.report_only else _run(options)
    except (ValueError, OSError) as error:  # SettingsError and ModelError are ValueErrors
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR


def _run(options: argparse.Namespace) -> int:
    _require(options)
    jobs, source = plan_jobs(options), _source(options)
    metrics = ImageMetrics(source.device)
    about = _about(options, source, metrics.missing)
    store = RowStore.of(options.out, jobs, about, resume=options.resume)  # before the model, which can take long
    engine = _engine(options, source, metrics)
    store.begin(about, len(jobs))  # only now: a model that cannot be loaded leaves no folder
    try:
        failed = run_jobs(jobs, store, engine, seconds=options.time_limit)
    except (KeyboardInterrupt, OSError) as error:
        reason = f"Stopped ({error})" if isinstance(error, OSError) else "Stopped"
        rows = f"{len(store.done())} of {len(jobs)} rows are in {options.out}"
        sys.stderr.write(f"{reason}: {rows}; --resume continues.\n")
        return USAGE_ERROR if isinstance(error, OSError) else INTERRUPTED
    if failed:
        log.warning("%d rows failed; the report lists their errors", failed)
    reported = 0 if options.no_report else _report(options.out)
    return reported or int(failed > 0)


def _require(options: argparse.Namespace) -> None:
    """Raise ModuleNotFoundError now for a package that the run would miss after its images."""
    for name in ("yaml",) * bool(options.grid) + REPORT_PACKAGES * (not options.no_report):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _engine(options: argparse.Namespace, source: Source, metrics: ImageMetrics) -> Engine:
    """What runs the jobs: this process, several of them, or a Ray cluster."""
    runs, timed = options.runs, not options.untimed
    if options.engine == "ray":
        return ray_engine(source, runs=runs, timed=timed, cores=options.cores)
    if options.engine == "processes":
        return process_engine(source, runs=runs, timed=timed, processes=options.processes)
    return local_engine(source.open(), runs=runs, timed=timed, metrics=metrics)


def _report(folder: Path) -> int:
    from .report.report import write_report

    write_report(folder)
    log.info("written: %s", folder / "report.md")
    return 0


def _source(options: argparse.Namespace) -> Source:
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Source(
        model=options.model,
        device=device,
        dtype=options.dtype or ("float16" if device.startswith("cuda") else "float32"),
        cores=options.cores or (1 if options.engine == "processes" else None),
        weights=options.weights,
        counts=options.untimed,
        peers=_peers(options),
    )


def _variants(options: argparse.Namespace) -> list[Variant]:
    """The variants of presets, grid and peers. The default is all presets, or none with a grid."""
    presets = options.presets if options.presets is not None else ([] if options.grid else ["all"])
    found = [*from_presets(presets), *(from_grid(options.grid) if options.grid else [])]
    without_options = [name for name in _peers(options) if name not in {variant.peer for variant in found}]
    usual = [from_peer(name, options) for name in without_options for options in PEERS[name].usual]
    return unique_variants([*found, *usual])


def _peers(options: argparse.Namespace) -> dict[str, str]:
    """The folder of each peer, or "" for an installed one."""
    found = {}
    for text in options.peer or []:
        name, _, path = text.partition("=")
        if name not in PEERS or (path and not Path(path).is_dir()):
            raise SettingsError("peer", text, f"NAME=FOLDER with one of the names {', '.join(PEERS)}")
        found[name] = path
    return found


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise SettingsError("sizes", text, "width x height in pixels, such as 512x768")
    return int(width), int(height)


def _about(options: argparse.Namespace, source: Source, missing: dict[str, str]) -> dict[str, Any]:
    """What the report says about the run. A resumed run must have the same model and number of runs."""
    versions = {"torch": torch.__version__, "todo_core": todo_core.__version__, "python": platform.python_version()}
    processor = f"torch on {source.cores or torch.get_num_threads()} cores"
    if source.device.startswith("cuda"):
        processor = torch.cuda.get_device_name()
    return {
        "runs": options.runs,
        "model": source.model,
        "device": source.device,
        "dtype": source.dtype,
        "machine": f"{platform.system()} {platform.machine()}, {processor}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "command": "python -m todo_lab evaluate " + shlex.join(map(_without_folder, options.words[1:])),
        "missing": missing,
    }


def _without_folder(word: str) -> str:
    """A word of the command, with a path shortened to its name."""
    if "=" in word:
        return word.partition("=")[0] + "=..."
    return Path(word).name if "/" in word else word
