"""From a dataset to a checkpoint: the one function that trains every part of a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from acid import checkpoint, distributed, models, tasks
from acid.data import Episodes, import_once, partition, read_ahead
from acid.data.lerobot import is_lerobot
from acid.device import resolve_device
from acid.errors import AcidError, CheckpointError, DataError, look_up
from acid.files import check_name, clipped, parse_json
from acid.loop import SettingError, cpu_seconds, train
from acid.models import Kind
from acid.models.compact import CompactTokenizer
from acid.training import inspection, inverse, model, tokenizer
from acid.training.dataset import partition_of
from acid.training.part import Job, Part, Recipe, SplittingRecipe
from acid.workers import alone_in

PARTS: dict[str, Part] = {
    "tokenizer": tokenizer.PART,
    "model": model.PART,
    "verifier": inverse.VERIFIER,
    "policy": inverse.POLICY,
    "decoder": inspection.DECODER,
    "readout": inspection.READOUT,
}
Progress = Callable[[str, int, int, Mapping[str, float]], None]  # "encode" or "train", done, in all, losses


def recipe(part: str, model: str, scale: str = "lite") -> Recipe:
    """How a part of a cell is trained; change what you like with `dataclasses.replace`."""
    kind, chosen = look_up(models.KINDS, model, "world model"), look_up(PARTS, part, "part of a cell")
    if part not in kind.parts:
        raise AcidError(f"a cell of {model} has no {part}; its parts are {', '.join(kind.parts)}")
    look_up(kind.presets, scale, "scale")
    return chosen.recipe(model, scale)


def fit(
    recipe: Recipe,
    data: Path,
    cell: Path,
    *,
    task: str | None = None,
    device: str | torch.device = "auto",
    workers: int = 0,
    epochs: float | None = None,
    micro_batch: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Train, measure and save a part to `cell`/part, which is returned; an interrupted run continues from its run/.

    task: default: the one that the dataset was collected for. workers: processes that read batches; 0: a thread.
    epochs: passes over the training data, instead of the recipe's steps. micro_batch: work through a batch in parts of
    at most this many examples, to save memory. With it, or with several processes of torchrun, the result differs only
    by rounding and, in networks with random parts, by other random numbers. A batch is shared by all processes.
    """
    if micro_batch is not None and micro_batch < 1:
        raise SettingError(f"micro_batch must be at least 1, got {micro_batch}")
    distributed.check_joined()
    report = progress if progress and distributed.first() else (lambda stage, done, total, losses: None)
    kind, part = look_up(models.KINDS, recipe.model, "world model"), look_up(PARTS, recipe.part, "part of a cell")
    device, folder = resolve_device(str(device)), cell / recipe.part
    below = _below(part, kind, recipe, cell)
    recorded = {} if below is None else checkpoint.load(below).metadata
    with distributed.in_turn():
        episodes = _open(data, kind, recipe, cell, lambda done, total: report("import", done, total, {}))
    task = _task(task, episodes, recorded)
    if isinstance(recipe, SplittingRecipe):
        _check_frameskip(recipe, task)
        parts = partition(episodes, held_out=recipe.held_out, frameskip=recipe.frameskip)
    if below is not None:
        parts = partition_of(below, episodes, any_data=part.any_data)
    about = {
        "part": recipe.part,
        "task": task_name(task),
        "model": recipe.model,
        "scale": recipe.scale,
        "data": episodes.attributes,
        "partition": parts.as_dict(),
    }
    if below is not None:
        about["built_on"] = {below.name: checkpoint.fingerprint(below)}
        if "tokenizer" in kind.parts:
            about["tokenizer"] = _tokenizer(cell, recorded)
    job = Job(
        recipe, task, cell, episodes, parts, device, lambda done, total: report("encode", done, total, {}), micro_batch
    )
    with torch.random.fork_rng(devices=[]), distributed.in_turn():
        made = part.prepare(job)
    if epochs is not None:
        if not 0 < epochs < math.inf:
            raise SettingError(f"epochs must be a positive number, got {epochs}")
        steps = max(1, round(epochs * made.examples / recipe.loop.batch_size))
        recipe = replace(recipe, loop=replace(recipe.loop, steps=steps))
    settings = {name: value for name, value in asdict(recipe).items() if name not in about}
    loop = settings.pop("loop")
    with alone_in(folder / "run") if distributed.first() else nullcontext():
        train(
            made.module,
            made.loss,
            partial(read_ahead, made.read, workers=workers),
            recipe.loop,
            folder / "run",
            description=about | {"recipe": settings},
            device=device,
            progress=lambda step, losses: report("train", step, recipe.loop.steps, losses),
            micro_batch=made.micro_batch,
        )
        if distributed.first():
            about |= {"recipe": settings | {"loop": loop}, "cpu_seconds": cpu_seconds(folder / "run")} | made.measure()
            made.save(folder, metadata=about, half_precision=recipe.half_precision)
    distributed.wait()
    return folder


def _below(part: Part, kind: Kind, recipe: Recipe, cell: Path) -> Path | None:
    """The checkpoint that the part builds on, which must be there and of the same kind of world model."""
    if part.needs not in kind.parts:
        return None
    folder = cell / str(part.needs)
    if not folder.is_dir():
        raise CheckpointError(
            f"a {recipe.part} is trained after the {part.needs}, and there is none at {folder}: "
            f"run `acid train {part.needs} {recipe.model}` first"
        )
    found = checkpoint.load(folder).metadata.get("model")
    if found != recipe.model:
        raise CheckpointError(f"{folder} belongs to the world model {found!r}, not to {recipe.model!r}")
    return folder


def _tokenizer(cell: Path, recorded: Mapping[str, Any]) -> str:
    """The fingerprint of the cell's tokenizer, which must also be that of the cell's model."""
    found = CompactTokenizer.load(cell / "tokenizer").fingerprint
    if recorded.get("tokenizer", found) != found:
        raise CheckpointError(
            f"{cell / 'model'} was trained with another tokenizer than the one beside it; train it again"
        )
    return found


def _open(data: Path, kind: Kind, recipe: Recipe, cell: Path, progress: Callable[[int, int], None]) -> Episodes:
    """A dataset file, or a folder that is imported once: LeRobot's or, where poses are enough, RECON's trajectories."""
    if kind.actions != "displacements":
        if is_lerobot(data):
            data = import_once(data, "lerobot", _frame_size(recipe, cell), progress=progress).path
        elif data.is_dir():
            raise DataError(f"{data} is a folder; turn it into a dataset first with `acid import`")
        return Episodes(data, require=("pixels", "action"))
    if data.is_dir():
        data = import_once(data, "recon", _frame_size(recipe, cell), progress=progress).path
    return Episodes(data, require=("pixels", "action", "pose"))


def _frame_size(recipe: Recipe, cell: Path) -> int:
    """Pixels along a side of what the cell's world model sees."""
    if recipe.part == "tokenizer":
        return recipe.network.image_size
    if (cell / "tokenizer").is_dir():
        return CompactTokenizer.load(cell / "tokenizer").config.image_size
    if recipe.part != "model":
        return models.load(cell / "model").observation_size
    encoder = recipe.network.encoder
    return getattr(encoder, "observation_size", None) or encoder.image_size


def _check_frameskip(recipe: SplittingRecipe, task: str) -> None:
    """A SettingError unless a world model steps as its task does, where the task's simulator can tell."""
    try:
        known = tasks.task_class(task).frameskip if ":" in task or task in tasks.TASKS else recipe.frameskip
    except AcidError:  # trained on a machine without the simulator; planning will tell
        return
    if recipe.part == "model" and recipe.frameskip != known:
        raise SettingError(
            f"frameskip={recipe.frameskip}, but the task {task!r} makes {known} environment steps per model step: "
            f"pass --frameskip {known}"
        )


def task_name(task: str) -> str:
    """What a task calls itself, which is its name in the registry unless it is given as package.module:Class."""
    return tasks.task_class(task).name if ":" in task else check_name(task, "name of a task", SettingError)


def _task(asked: str | None, episodes: Episodes, recorded: Mapping[str, Any]) -> str:
    """The task, about which the caller, the dataset and the checkpoint below must agree.

    A file may name a class, but only the caller has one imported.
    """
    described = parse_json(
        episodes.attributes.get("collection", "{}"), f"the attribute 'collection' of {episodes.path}"
    )
    collected = described.get("task") if isinstance(described, dict) else None
    task = asked or collected or recorded.get("task") or episodes.path.stem
    if not isinstance(task, str) or (":" in task and not asked):
        raise DataError(f"{episodes.path} is said to be of the task {clipped(task)}: pass --task to use that class")
    names = (task, task_name(task))
    for source, found in ((episodes.path, collected), ("the cell", recorded.get("task"))):
        if found is not None and found not in names:
            raise DataError(f"{source} is of the task {clipped(found)}, not of {task!r}")
    return task
