"""`acid train`: one part of a cell, with every number of its recipe open to change."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from acid import distributed
from acid.cli.options import Device, OnDevice
from acid.cli.progress import bar, training_bar
from acid.device import resolve_device
from acid.errors import AcidError

# Short forms of the settings that are changed most often.
SHORT = {f"--{name}": f"--loop.{name}" for name in ("steps", "batch-size", "learning-rate", "seed", "precision")}
CHOICE = ("part", "model", "scale")  # what decides which settings there are


@dataclass(frozen=True)
class Train:
    """Train one part of a cell: first the world model (for nwm its tokenizer), then what is trained on its latents."""

    part: Annotated[str, tyro.conf.Positional]
    """tokenizer, model, verifier, policy, decoder or readout."""
    model: Annotated[str, tyro.conf.Positional] = "lewm"
    """Kind of world model."""
    scale: str = "lite"
    """Size of the networks and length of the training: lite (minutes on a CPU) or paper."""
    task: str | None = None
    """Default: the task that the dataset was collected for, or else the dataset's name; without --data: reacher."""
    data: Path | None = None
    """Default: data/TASK.h5; for nwm and nwm-diffusion also a folder of RECON's files."""
    out: Path | None = None
    """Folder of the cell; the part goes into a subfolder. Default: runs/TASK/MODEL"""
    epochs: float | None = None
    """Passes over the training data, instead of a number of steps."""
    workers: int = 0
    """Processes that read batches; 0: one thread."""
    threads: int = 1
    """CPU threads for a training step."""
    micro_batch: int | None = None
    """Work through a batch in parts of at most this many examples, to save memory; only rounding differs."""
    compute: OnDevice = field(default_factory=Device)

    def run(self) -> None:
        from acid import training

        self.train(training.recipe(self.part, self.model, self.scale))

    def train(self, recipe: Any) -> None:
        import torch

        from acid import checkpoint, training
        from acid.verifier import FlowReport

        if self.threads < 1:
            raise AcidError(f"threads must be at least 1, got {self.threads}")
        torch.set_num_threads(self.threads)
        task = self.task or ("reacher" if self.data is None else None)
        name = training.task_name(task) if task else Path(self.data or "").resolve().stem
        with distributed.group(resolve_device(self.compute.device)) as device, ExitStack() as stack:
            folder = training.fit(
                recipe,
                self.data or Path("data") / f"{name}.h5",
                self.out or Path("runs") / name / self.model,
                task=task,
                device=device,
                workers=self.workers,
                epochs=self.epochs,
                micro_batch=self.micro_batch,
                progress=_bars(stack, self.part),
            )
            if not distributed.first():
                return
        told = checkpoint.load(folder).metadata
        fitted = checkpoint.config_from(FlowReport, told["report"]) if "report" in told else None
        print(fitted or json.dumps(told["validation"], indent=2))
        print(f"wrote {folder}")


def train_command(arguments: list[str]) -> None:
    """`acid train ARGUMENTS`: the first two choose a recipe, whose settings are then options like all others."""
    from acid import models, training

    about = f"{Train.__doc__}\n\nParts: {', '.join(training.PARTS)}.\nModels: {', '.join(models.KINDS)}.\n"
    if not arguments or arguments[0] in ("-h", "--help"):
        about += "`acid train PART MODEL --help` lists every setting of a recipe."
        tyro.cli(Train, prog="acid train", description=about, args=arguments)  # ends here, with help or what is missing
    if arguments[0].startswith("-"):
        raise AcidError(f"say first what to train, `acid train PART MODEL ...`, not {arguments[0]!r}")
    part, *rest = arguments
    model = rest.pop(0) if rest and not rest[0].startswith("-") else "lewm"
    rest = _long_forms(rest)
    scale = rest[rest.index("--scale") + 1] if "--scale" in rest[:-1] else Train.scale
    recipe = training.recipe(part, model, scale)
    command = tyro.cli(
        _with_settings(recipe),
        prog=f"acid train {part} {model}",
        description=f"{about}{', '.join(SHORT)} are short for --loop.steps and so on.",
        args=[part, model, *rest],
        config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff),
    )
    settings = {name: getattr(command, name) for name in _settings(recipe)}
    command.train(replace(recipe, **settings))


def _settings(recipe: Any) -> dict[str, Any]:
    """What may be changed: all but the choice itself, and networks or losses that have nothing to set."""
    values = {entry.name: getattr(recipe, entry.name) for entry in fields(recipe)}
    return {name: value for name, value in values.items() if name not in CHOICE and value is not None}


def _with_settings(recipe: Any) -> Any:
    """The options of `Train` and a recipe's settings, by default with the recipe's values."""
    hints = get_type_hints(type(recipe))
    extra = []
    for name, value in _settings(recipe).items():
        described = Annotated[hints[name], tyro.conf.arg(help=_note(recipe, name))]
        extra.append((name, Any if name in ("network", "loss", "loop") else described, field(default=value)))
    return make_dataclass("Train", extra, bases=(Train,), frozen=True)


def _note(recipe: Any, name: str) -> str:
    """The comment beside a field of a recipe; tyro does not find it, because the class of the options is another."""
    lines = (line for cls in type(recipe).__mro__[:-1] for line in inspect.getsource(cls).splitlines())
    return next((line.partition("  # ")[2] for line in lines if line.startswith(f"    {name}: ")), "")


def _long_forms(arguments: list[str]) -> list[str]:
    """Every option as --name value in its long form; none may be given twice, in whatever form."""
    found: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        found += [SHORT.get(name.replace("_", "-"), name.replace("_", "-"))] if name else []
        found += [value] if equals or not name else []
    names = [argument for argument in found if argument.startswith("--")]
    for name in names:
        if names.count(name) > 1:
            short = {long: f" (or {short})" for short, long in SHORT.items()}.get(name, "")
            raise AcidError(f"{name}{short} is given twice; give it once")
    if {"--epochs", "--loop.steps"} <= set(names):
        raise AcidError("--epochs and --steps both say how long to train; give one of them")
    return found


def _bars(stack: ExitStack, part: str) -> Any:
    """Progress bars, one for each stage of training, opened when it begins."""
    opened: dict[str, Any] = {}

    def show(stage: str, done: int, total: int, losses: Mapping[str, float]) -> None:
        if stage not in opened:
            unit = "episode" if stage == "import" else "frame"
            made = training_bar(f"train {part}", total) if stage == "train" else bar(stage, unit)
            opened[stage] = stack.enter_context(made)
        opened[stage](done, losses if stage == "train" else total)

    return show
