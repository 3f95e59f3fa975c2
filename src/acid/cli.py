"""The `acid` command: parse, call, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from tqdm import tqdm

from acid.errors import AcidError, look_up

Scale = Literal["lite", "paper"]
LAMBDAS = (0.02, 0.07, 0.2, 0.5, 1.0)


def _tqdm(**options: Any) -> Any:
    """A bar for a person, or a line now and then for a log file."""
    interval = 0.2 if sys.stderr.isatty() else 60
    return tqdm(dynamic_ncols=True, mininterval=interval, maxinterval=interval, **options)


@contextmanager
def _bar(title: str, unit: str) -> Any:
    """A progress bar driven by (done, total)."""
    with _tqdm(desc=title, unit=unit) as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


@contextmanager
def _training_bar(title: str, steps: int) -> Any:
    """A progress bar that shows the losses beside the time left."""
    with _tqdm(desc=title, unit="step", total=steps) as bar:

        def update(step: int, losses: Any) -> None:
            if bar.n == 0:
                bar.unpause()  # whatever came before the first step does not count
            bar.update(step - bar.n)
            shown = losses if isinstance(losses, dict) else {"loss": losses}
            bar.set_postfix({name: f"{float(value):.4f}" for name, value in shown.items()}, refresh=False)

        yield update


@dataclass(frozen=True)
class Search:
    """The size of the search: N candidates, J iterations, K elites; as published for the task where nothing is said."""

    method: str = "cem"
    samples: int | None = None
    iterations: int | None = None
    elites: int | None = None

    def build(self, task: str) -> Any:
        from acid import planning
        from acid.experiments.setups import setup

        published: Any = setup(task).search
        samples, iterations = self.samples or published.samples, self.iterations or published.iterations
        elites = self.elites or published.elites
        methods: dict[str, Callable[[], Any]] = {
            "cem": lambda: planning.CEM(samples, iterations, elites),
            "icem": lambda: planning.ICEM(samples, iterations, elites),
            "mppi": lambda: planning.MPPI(samples, iterations),
            "gradient": lambda: planning.Gradient(samples, iterations),
            "shooting": lambda: planning.Shooting(samples * iterations),
        }
        return look_up(methods, self.method, "search method")()


@dataclass(frozen=True)
class Collect:
    """Collect episodes of a task; continues an interrupted run. The same seed gives the same data."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    episodes: int = 2400
    out: Path | None = None
    """Default: data/TASK.h5"""
    size: int = 64
    """Pixels along each side of an image."""
    seed: int = 0
    processes: int = 2

    def run(self) -> None:
        from acid.tasks import TASKS
        from acid.tasks.collect import Collection, collect

        look_up(TASKS, self.task, "task")
        out = self.out or Path("data") / f"{self.task}.h5"
        with _bar(f"collect {self.task}", "episode") as progress:
            collect(
                Collection(self.task, self.episodes, self.size, self.seed),
                out,
                processes=self.processes,
                progress=progress,
            )
        print(f"wrote {out}")


@dataclass(frozen=True)
class Train:
    """Train one part of a cell: the world model first (of nwm the tokenizer), then what builds on its latents."""

    part: Annotated[Literal["tokenizer", "model", "verifier", "policy", "decoder", "readout"], tyro.conf.Positional]
    task: str = "reacher"
    model: str = "lewm"
    scale: Scale = "lite"
    data: Path | None = None
    """Default: data/TASK.h5; for nwm also a folder of RECON's files."""
    out: Path | None = None
    """Folder of the cell; the part goes into a subfolder. Default: runs/TASK/MODEL"""
    steps: int | None = None
    seed: int = 0
    change: dict[str, float] = field(default_factory=dict)
    """Other settings of a Le-WM or PLDM, e.g. objective.sigreg 0.09 encoder.keypoints 0."""
    threads: int = 1

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        data = self.data or Path("data") / f"{self.task}.h5"
        out = self.out or Path("runs") / self.task / self.model
        look_up(self._trainers(), self.part, f"part of a cell of {self.model}")(data, out)
        print(f"wrote {out / self.part}")

    def _trainers(self) -> dict[str, Callable[[Path, Path], None]]:
        """What trains each part that a cell of this world model has, given dataset and folder of the cell."""
        from acid.training import navigation, token_model

        if self.model in navigation.KINDS:
            return {
                "tokenizer": self._train_tokenizer,
                "model": self._train_navigation,
                "verifier": self._train_navigation_verifier,
            }
        model = self._train_token_model if self.model in token_model.KINDS else self._train_world_model
        return {"model": model} | dict.fromkeys(("verifier", "policy", "decoder", "readout"), self._train_on_latents)

    def _train_world_model(self, data: Path, out: Path) -> None:
        from acid.training import world_model

        recipe = world_model.recipe(self.model, self.scale, steps=self.steps, seed=self.seed, changes=self.change)
        with _training_bar("train", recipe.loop.steps) as progress:
            world_model.train_world_model(data, out / "model", recipe, progress=progress)
        _print_json(out / "model", "validation")

    def _train_token_model(self, data: Path, out: Path) -> None:
        from acid.training import token_model

        recipe = token_model.recipe(self.scale, steps=self.steps, seed=self.seed)
        with _bar("encode", "frame") as encoding, _training_bar("train", recipe.loop.steps) as progress:
            token_model.train_token_model(data, out / "model", recipe, progress=progress, encoding=encoding)
        _print_json(out / "model", "validation")

    def _train_tokenizer(self, data: Path, out: Path) -> None:
        from acid.models import compact
        from acid.nn.lpips import load_lpips
        from acid.training import navigation, tokenizer

        recipe = tokenizer.recipe(self.scale, steps=self.steps, seed=self.seed)
        frames = navigation.open_frames(data, compact.PRESETS[recipe.preset]().image_size)
        with _training_bar("train tokenizer", recipe.loop.steps) as progress:
            tokenizer.train_tokenizer(frames, out / "tokenizer", recipe, perceptual=load_lpips(), progress=progress)
        _print_json(out / "tokenizer", "validation")

    def _train_navigation(self, data: Path, out: Path) -> None:
        from acid.nn.lpips import load_lpips
        from acid.training import navigation

        tokenizer, dataset = self._tokenise(data, out)
        recipe = navigation.recipe(self.scale, steps=self.steps, seed=self.seed)
        with _training_bar("train", recipe.loop.steps) as progress:
            navigation.train_navigation(
                dataset, tokenizer, out / "model", recipe, perceptual=load_lpips(), progress=progress
            )
        _print_json(out / "model", "validation")

    def _train_navigation_verifier(self, data: Path, out: Path) -> None:
        from acid.training import navigation

        tokenizer, dataset = self._tokenise(data, out)
        recipe = navigation.verifier_recipe(self.scale, steps=self.steps, seed=self.seed)
        with _training_bar("train verifier", recipe.fit.steps) as progress:
            fitted = navigation.train_navigation_verifier(
                dataset, tokenizer, out / "verifier", recipe, progress=progress
            )
        print(fitted.report)

    def _tokenise(self, data: Path, out: Path) -> Any:
        """The cell's tokenizer and the dataset as it sees it."""
        from acid.models.compact import CompactTokenizer
        from acid.training import navigation

        tokenizer = CompactTokenizer.load(out / "tokenizer")
        with _bar("tokenise", "frame") as progress:
            frames = navigation.open_frames(data, tokenizer.config.image_size)
            return tokenizer, navigation.tokenise(tokenizer, frames, progress=progress)

    def _train_on_latents(self, data: Path, out: Path) -> None:
        from acid.training import decoder, inverse, readout
        from acid.training.latents import load_latents

        with _bar("encode", "frame") as progress:
            dataset = load_latents(out / "model", data, progress=progress)
        target = out / self.part
        if self.part == "decoder":
            tokens = dataset.latents.shape[1]
            drawing = decoder.recipe(self.scale, tokens=tokens, steps=self.steps, seed=self.seed)
            with _training_bar("train decoder", drawing.loop.steps) as progress:
                decoder.train_decoder(dataset, target, drawing, progress=progress)
            return
        if self.part == "readout":
            reading = readout.recipe(self.scale, steps=self.steps, seed=self.seed)
            with _training_bar("train readout", reading.loop.steps) as progress:
                readout.train_readout(dataset, target, self.task, reading, progress=progress)
            return _print_json(target, "chamfer")
        chosen = inverse.recipe(self.scale, steps=self.steps, seed=self.seed)
        fit = inverse.train_verifier if self.part == "verifier" else inverse.train_policy
        with _training_bar(f"train {self.part}", chosen.fit.steps) as progress:
            fitted = fit(dataset, target, chosen, progress=progress)
        print(fitted.report)


def _print_json(folder: Path, entry: str) -> None:
    from acid import checkpoint

    print(json.dumps(checkpoint.load(folder).metadata[entry], indent=2))


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a cell on held-out, paired episodes; continues where an earlier run stopped."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    conditions: tuple[str, ...] = ("original", "acid", "control", "policy", "random", "noop")
    lambdas: tuple[float, ...] = LAMBDAS
    """λ of ACID and of the control, one condition each."""
    search: tyro.conf.OmitArgPrefixes[Search] = field(default_factory=Search)
    episodes: int = 200
    split: Literal["test", "select"] = "test"
    """λ is chosen on "select", and remembered beside the checkpoints, and reported on "test"."""
    seed: int = 0
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    data: Path | None = None
    """Draw the instances from this dataset instead of using the shipped ones."""
    results: Path = Path("results")
    processes: int = 2
    batch: int = 8
    fresh: bool = False
    """Replace earlier results of these conditions."""

    def run(self) -> None:
        from acid.experiments.cell import Cell
        from acid.experiments.evaluate import draw, evaluate, jobs, remember_lambdas

        cell = Cell(self.task, self.model, self.folder)
        protocol = cell.setup.protocol(seed=self.seed, episodes=self.episodes, split=self.split)
        if self.data:
            drawn = draw(cell, self.data, protocol)
            print(f"drew {len(drawn.unsolved)} instances; {drawn.share_solved:.1%} of the draws were solved already")
        work = jobs(
            cell,
            self.conditions,
            self.search.build(self.task),
            self.lambdas,
            protocol,
            self.results,
            batch=self.batch,
            fresh=self.fresh,
        )
        with _bar(f"evaluate {self.task}", "episode") as progress:
            evaluate(work, processes=self.processes, progress=progress)
        Results(self.results, split=self.split).run()
        if self.split == "select" and "acid" in self.conditions:
            print(remember_lambdas(cell, self.results))


@dataclass(frozen=True)
class Results:
    """Summarise everything in a results folder, each condition against Original on the same episodes."""

    results: Annotated[Path, tyro.conf.Positional] = Path("results")
    split: Literal["test", "select"] = "test"
    metric: str | None = None
    """Another column of the rows, e.g. final_error."""
    starts: Literal["strict", "paper"] = "strict"
    """Which episodes count: those not solved at the start, or as many of the first draws (as published work does)."""
    json: bool = False
    figures: Path | None = None
    """Also draw success against budget and the λ sweeps into this folder."""

    def run(self) -> None:
        from acid.evaluation import summarise, table

        summaries = summarise(self.results, split=self.split, metric=self.metric, starts=self.starts)
        if self.json:
            print(json.dumps([summary.as_dict() for summary in summaries], indent=2, ensure_ascii=False))
        else:
            print(table(summaries))
        if self.figures:
            from acid.experiments import figures

            for path in figures.draw(self.results, self.figures):
                print(f"wrote {path}", file=sys.stderr)


@dataclass(frozen=True)
class PlanOne:
    """Plan one held-out problem and show the plan."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    problem: int = 0
    lam: float | None = None
    """Consistency weight λ; default: the one chosen for the shipped weights. 0 plans with the goal cost alone."""
    search: tyro.conf.OmitArgPrefixes[Search] = field(default_factory=Search)
    seed: int = 0
    folder: Path | None = None
    out: Path | None = None
    """Write a picture of the imagined and the executed rollout here."""

    def run(self) -> None:
        from acid.experiments import show

        torch.set_num_threads(1)
        print(
            show.plan_one(
                self.task,
                self.model,
                self.problem,
                lam=self.lam,
                search=self.search.build(self.task),
                seed=self.seed,
                folder=self.folder,
                out=self.out,
            )
        )


@dataclass(frozen=True)
class Import:
    """Turn a Le-WM or PLDM published by stable-worldmodel into a checkpoint of this library."""

    published: Annotated[Path, tyro.conf.Positional]
    """A folder with config.json and weights.pt."""
    data: Path
    """The dataset it was trained on, for the action statistics."""
    out: Path
    held_out: float = 0.0
    """Share of that dataset's episodes that its training did not see."""
    weights: str | None = None
    """Which file of weights, where the folder has several."""

    def run(self) -> None:
        from acid.integrations.published import convert

        convert(self.published, self.data, self.out, held_out=self.held_out, weights=self.weights)
        print(f"wrote {self.out}")


@dataclass(frozen=True)
class Reproduce:
    """Run or resume a table of the paper, print it beside the published numbers and write it to the results.

    planning: Table 1, Le-WM and PLDM on Cube, Reacher and Push-T.
    deformable: Table 2 left, DINO-WM on Rope and Granular, and its figures.
    navigation: Table 2 right, NWM with CompACT; and whether consistency tells where imagination fails.
    """

    name: Annotated[Literal["planning", "deformable", "navigation"], tyro.conf.Positional]
    tasks: tuple[str, ...] = ()
    """Default: all tasks of the table."""
    models: tuple[str, ...] = ("lewm", "pldm")
    """Of the table "planning"."""
    episodes: int | None = None
    """Default: 200 (planning, navigation), 50 (deformable)."""
    results: Path = Path("results")
    processes: int = 2
    choose: bool = False
    """Choose λ again, on episodes that are not reported, instead of planning with the one that was chosen."""
    figures: Path | None = None
    """Also draw the figures of the table into this folder."""
    evaluate: bool = True
    """Run what is missing; otherwise the table is made of the rows that are there."""
    folder: Path | None = None
    """Of the table "navigation": checkpoints of your own; default: the shipped ones."""
    data: Path | None = None
    """Of the table "navigation": draw the cases from this dataset instead of using the shipped ones."""

    def run(self) -> None:
        experiment = self._experiment()
        if self.choose:
            with _bar("choose λ", "episode") as progress:
                print(experiment.choose(processes=self.processes, progress=progress))
        if self.evaluate:
            with _bar(f"reproduce {self.name}", "episode") as progress:
                experiment.run(processes=self.processes, progress=progress)
        print(experiment.write())
        if self.figures:
            for path in experiment.draw(self.figures):
                print(f"wrote {path}", file=sys.stderr)

    def _experiment(self) -> Any:
        from acid.experiments import deformable, navigation, planning

        if self.name == "navigation":
            return navigation.NavigationTable(self.results, self.episodes or 200, self.folder, self.data)
        if self.name == "deformable":
            return deformable.DeformableTable(self.results, self.tasks or deformable.TASKS, self.episodes or 50)
        return planning.PlanningTable(self.results, self.tasks or planning.TASKS, self.models, self.episodes or 200)


@dataclass(frozen=True)
class Card:
    """Write the model card of a cell: commands, losses, what its latents and its verifier know."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    data: Path | None = None
    """Probe the latents on this dataset; without it the last probe is kept."""

    def run(self) -> None:
        from acid.experiments.card import write_card
        from acid.experiments.cell import Cell

        torch.set_num_threads(1)
        print(f"wrote {write_card(Cell(self.task, self.model, self.folder), self.data)}")


@dataclass(frozen=True)
class Diagnose:
    """Why ACID helps in a cell, or not: execute candidates and plans, and compare them with what was imagined."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    folder: Path | None = None
    """Checkpoints of your own; default: the shipped ones."""
    problems: int = 24
    json: bool = False

    def run(self) -> None:
        from acid.experiments.cell import Cell
        from acid.experiments.diagnosis import diagnose

        torch.set_num_threads(1)
        with _bar(f"diagnose {self.task}", "problem") as progress:
            found = diagnose(Cell(self.task, self.model, self.folder), problems=self.problems, progress=progress)
        print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if self.json else found.text())


@dataclass(frozen=True)
class Demo:
    """The same problems planned with the goal cost alone and with ACID: a table, plots and videos."""

    task: Annotated[str, tyro.conf.Positional] = "reacher"
    model: str = "lewm"
    episodes: int = 40
    out: Path = Path("out/demo")
    processes: int = 2

    def run(self) -> None:
        from acid.experiments import demo

        with _bar("plan and execute", "episode") as progress:
            text = demo.run(self.task, self.model, self.episodes, self.out, self.processes, progress)
        print(text)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[PlanOne, tyro.conf.subcommand("plan")]
    | Annotated[Evaluate, tyro.conf.subcommand("eval")]
    | Annotated[Results, tyro.conf.subcommand("results")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Card, tyro.conf.subcommand("card")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error that the user can mend is printed without a traceback."""
    command = tyro.cli(Command, prog="acid", args=arguments)  # type: ignore[arg-type]
    try:
        command.run()
    except AcidError as error:
        print(f"acid: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("acid: stopped; the same command continues", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
