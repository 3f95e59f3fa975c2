"""Does the consistency score tell where imagination fails? Rollouts of NWM under the actions that were really taken.

For every held-out instance: the residual of each imagined step, the residual of the same step between the true frames,
how far the imagined frame is from the true one, and how far the pose from which the simulator would see it is from the
true pose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from acid import tasks
from acid.data.poses import displacements, normalise
from acid.errors import DataError
from acid.evaluation import Bench, Cell, Instance, Interval, Protocol, bootstrap_rank_correlation, plan_seed
from acid.evaluation.jobs import Progress
from acid.evaluation.kits import NavigationKit
from acid.evaluation.play import render_states
from acid.evaluation.table import markdown
from acid.files import read_json_object, reason, write_text
from acid.nn.pictures import perceived, psnr
from acid.planning import ActionConsistency, Adaptive
from acid.report import SheetRow, consistency_per_step, followed_steps, inferred_against_found, sheet
from acid.report.style import IMAGINED, TRUE, Look
from acid.tables.locator import Locator
from acid.types import Trajectory

if TYPE_CHECKING:
    from acid.tasks.navigation import Navigation

FILE = "rollouts.json"
DIMENSIONS = ("forward", "sideways", "turn")
NOT_FOLLOWED = 0.95  # a step is not followed if its residual is above this quantile of those between true frames
SHOWN = (0.3, 0.7, 0.95)  # quantiles of the mean residual: which cases are drawn
RECONSTRUCTED = 8  # frames on the tokenizer's sheet
FIGURES = ("consistency", "following", "path", "rollouts", "tokenizer")
_PER_DIMENSION = ("residual", "residual_true", "departure")
KINDS = ("pooled", "within", "by_trajectory", "given_way")  # of correlation
STRAYED_AFTER = (2, 4, 8)  # steps whose places are compared with those that the verifier infers


@dataclass(frozen=True)
class Rollouts:
    """n rollouts of H steps. Residuals are squared differences in units of the action's standard deviation."""

    instances: tuple[str, ...]
    checkpoints: Mapping[str, str]
    residual: np.ndarray  # [n, H, 3] of imagined steps
    residual_true: np.ndarray  # [n, H, 3] of the same steps between the true frames, as the tokenizer draws them
    strayed: np.ndarray  # [n, H] m from where the actions so far lead to where those that the verifier infers do
    strayed_true: np.ndarray  # [n, H] the same between the true frames
    lpips: np.ndarray  # [n, H] of imagined frames against the true ones
    lpips_tokens: np.ndarray  # [n, H] against the true ones as the tokenizer draws them
    lpips_floor: np.ndarray  # [n, H] of the true frames as the tokenizer draws them against the true ones
    psnr: np.ndarray  # [n, H] in dB, as are the next
    psnr_floor: np.ndarray  # [n, H]
    place: np.ndarray  # [n, H] m from the true place to where an imagined frame is found in the simulator
    place_floor: np.ndarray  # [n, H] the same of the true frames as the tokenizer draws them
    way: np.ndarray  # [n, H] m driven so far
    departure: np.ndarray  # [n, H, 3] of the steps between frames so found from their actions, in units like residuals

    @property
    def score(self) -> np.ndarray:
        """The residual of a step as ACID counts it, [n, H]."""
        return self.residual.sum(-1)

    @property
    def score_true(self) -> np.ndarray:
        return self.residual_true.sum(-1)

    @property
    def threshold(self) -> float:
        """Residuals above it mean that the step does not follow its action."""
        return float(np.quantile(self.score_true, NOT_FOLLOWED))

    def save(self, path: Path) -> None:
        content = {
            name: np.round(value, 5).tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }
        write_text(path, json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: Path) -> Rollouts:
        remedy = "delete it and run `acid reproduce navigation` again"
        absent = "there are no rollouts; run `acid reproduce navigation` without --no-evaluate"
        content = read_json_object(path, missing=absent, remedy=remedy)
        if missing := [field.name for field in fields(cls) if field.name not in content]:
            raise DataError(f"{path} lacks {', '.join(missing)}; {remedy}")
        try:
            arrays = {field.name: np.asarray(content[field.name], float) for field in fields(cls)[2:]}
            cases, steps = arrays["lpips"].shape
            instances, checkpoints = tuple(map(str, content["instances"])), dict(content["checkpoints"])
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path} is damaged ({reason(error)}); {remedy}") from error
        for name, values in arrays.items():
            if values.shape[:2] != (cases, steps) or values.ndim != 2 + (name in _PER_DIMENSION):
                raise DataError(f"{path} is damaged: {name} has shape {list(values.shape)}; {remedy}")
            if not np.isfinite(values).all():
                raise DataError(f"{path} is damaged: {name} holds numbers that are not finite; {remedy}")
        return cls(instances, checkpoints, **arrays)


def rollouts_file(cell: Cell, results: Path) -> Path:
    return results / cell.task / cell.model / FILE


def run_rollouts(bench: Bench, results: Path, progress: Progress) -> Rollouts:
    """Roll out every instance under its true actions, unless these weights did so already; kept in the results."""
    cell, protocol = bench.cell, bench.protocol
    path, instances = rollouts_file(cell, results), cell.instances(protocol)
    checkpoints = cell.fingerprints(["model", "verifier"])
    if path.is_file():
        kept = Rollouts.load(path)
        if dict(kept.checkpoints) == checkpoints and kept.instances == tuple(i.id for i in instances):
            return kept
    kit = _kit(bench)
    found: list[dict[str, np.ndarray]] = []
    with closing(tasks.make(cell.task, size=kit.model.observation_size)) as task:
        for done, instance in enumerate(instances):
            progress(done, len(instances))
            rollout = imagine(kit, instance, protocol, task)  # type: ignore[arg-type]
            generator = torch.Generator().manual_seed(plan_seed(protocol.seed, instance.id, 0))
            locator = Locator(kit, task, int(instance.start_state[0]), generator)  # type: ignore[arg-type]
            found.append(measure(kit, rollout, locator))
    progress(len(instances), len(instances))
    arrays = {name: np.stack([one[name] for one in found]) for name in found[0]}
    rollouts = Rollouts(tuple(i.id for i in instances), checkpoints, **arrays)
    rollouts.save(path)
    return rollouts


def _kit(bench: Bench) -> NavigationKit:
    if not isinstance(bench.kit, NavigationKit):
        raise DataError(f"rollouts are measured with a cell of nwm, not of {bench.cell.model}")
    return bench.kit


@dataclass(frozen=True)
class Imagined:
    """One case under its true actions."""

    true: Tensor  # uint8 [H + 1, S, S, 3], from now on
    encoded: Tensor  # [H + 1, P, D] of the true frames
    latents: Tensor  # [H + 1, P, D], the first one observed, the others imagined
    actions: Tensor  # [H, A], normalised
    driven: np.ndarray  # [H + 1, 3], the true poses


@torch.no_grad()
def imagine(kit: NavigationKit, instance: Instance, protocol: Protocol, task: Navigation) -> Imagined:
    if instance.path is None:
        raise DataError(f"instance {instance.id} has no path to be compared with")
    seen, future = (torch.from_numpy(render_states(task, states)) for states in (instance.seen, instance.path))
    driven = np.concatenate([instance.start_state[None], instance.path])[:, 1:]
    actions, start = _actions(driven), kit.model.encode(seen[None])
    seeds = [plan_seed(protocol.seed, instance.id, 0)]
    latents = kit.model.rollout(start, actions[None, None], seeds=seeds)[0, 0]
    true = torch.cat([seen[-1:], future])
    encoded = torch.cat([start[0, -1:], kit.model.encode(future)])
    return Imagined(true, encoded, torch.cat([start[0, -1:], latents]), actions, driven)


def _actions(poses: np.ndarray) -> Tensor:
    """Between poses [H + 1, 3]: [H, A], normalised."""
    return torch.from_numpy(normalise(displacements(poses))).float()


@torch.no_grad()
def measure(kit: NavigationKit, rollout: Imagined, locator: Locator) -> dict[str, np.ndarray]:
    """The columns of `Rollouts` for one case."""
    model, weight = kit.model, Adaptive(1.0)
    consistency, of_path = kit.consistency(weight), kit.path_consistency(weight)

    def differences(term: ActionConsistency, latents: Tensor) -> Tensor:
        return term.differences(Trajectory(latents[None, None], rollout.actions[None, None]))[0, 0]

    def departure(places: np.ndarray) -> Tensor:
        moved = _actions(np.concatenate([rollout.driven[:1], places]))
        return (kit.verifier_units(moved) - kit.verifier_units(rollout.actions)).square()

    def off(places: np.ndarray) -> Tensor:
        return torch.from_numpy(np.linalg.norm(places[:, :2] - rollout.driven[1:, :2], axis=1))

    true = rollout.true[1:].float() / 255
    imagined, drawn = model.decode(rollout.latents[1:]), model.decode(rollout.encoded[1:])
    steps = displacements(rollout.driven)
    seen_from, drawn_from = (locator.follow(frames, rollout.driven[0], steps) for frames in (imagined, drawn))
    found = {
        "residual": differences(consistency, rollout.latents).square(),
        "residual_true": differences(consistency, rollout.encoded).square(),
        "strayed": differences(of_path, rollout.latents).norm(dim=-1),
        "strayed_true": differences(of_path, rollout.encoded).norm(dim=-1),
        "lpips": perceived(kit.lpips, imagined, true),
        "lpips_tokens": perceived(kit.lpips, imagined, drawn),
        "lpips_floor": perceived(kit.lpips, drawn, true),
        "psnr": psnr(imagined, true),
        "psnr_floor": psnr(drawn, true),
        "place": off(seen_from),
        "place_floor": off(drawn_from),
        "way": torch.from_numpy(np.linalg.norm(steps[:, :2], axis=1).cumsum()),
        "departure": departure(seen_from),
    }
    return {name: value.double().numpy() for name, value in found.items()}


@dataclass(frozen=True)
class Relation:
    """How a residual goes with an error: rank correlations, with intervals over the trajectories."""

    residual: str
    error: str
    pooled: Interval  # over all steps of all trajectories
    within: Interval  # at one step ahead, averaged over the steps: what remains when both simply grow
    by_trajectory: Interval  # of the means over the steps
    given_way: Interval  # at one step ahead where equally much was driven: a longer way makes larger errors of both


def relations(rollouts: Rollouts) -> list[Relation]:
    """Every kind of residual with every kind of error; positive if a larger residual means a worse frame."""
    so_far = np.cumsum(rollouts.score, 1) / np.arange(1, rollouts.score.shape[1] + 1)
    residuals = {"ACID's": rollouts.score, "ACID's, mean so far": so_far, "of the path": rollouts.strayed}
    residuals |= {name: rollouts.residual[..., k] for k, name in enumerate(DIMENSIONS)}
    errors = {"LPIPS": rollouts.lpips, "LPIPS to tokens": rollouts.lpips_tokens, "place": rollouts.place}
    departures = {name: rollouts.departure[..., k] for k, name in enumerate(DIMENSIONS)}
    pairs = [(a, b, residuals[a], errors[b]) for b in errors for a in residuals]
    pairs += [(name, "step", residuals[name], departure) for name, departure in departures.items()]
    pairs += [
        ("of the path, true frames", "place", rollouts.strayed_true, rollouts.place),
        ("forward, as found", "place", departures["forward"], rollouts.place),
    ]
    return [_relation(*pair, rollouts.way) for pair in pairs]


def _relation(name: str, error: str, a: np.ndarray, b: np.ndarray, way: np.ndarray) -> Relation:
    return Relation(
        name,
        error,
        pooled=bootstrap_rank_correlation(a, b),
        within=bootstrap_rank_correlation(a, b, within=True),
        by_trajectory=bootstrap_rank_correlation(a.mean(1, keepdims=True), b.mean(1, keepdims=True)),
        given_way=bootstrap_rank_correlation(a, b, within=True, given=way),
    )


def describe(rollouts: Rollouts, found: Sequence[Relation]) -> list[str]:
    """Lines of Markdown: the relations, and how often a step does not follow its action."""
    heading = ["residual of a step", "error", "all steps", "at one step", "trajectories", "at one step, given the way"]
    rows = [[r.residual, r.error, *(interval(getattr(r, kind)) for kind in KINDS)] for r in found]
    missed = (rollouts.score > rollouts.threshold).mean(0)
    return [
        f"Consistency and true error, {len(rollouts.instances)} held-out rollouts of {missed.size} steps under the "
        "true actions; rank correlations, 95 % intervals over trajectories:",
        "",
        markdown(heading, rows, texts=2),
        "",
        "LPIPS: of the imagined frame against the true one; to tokens: against the true one as the tokenizer draws it; "
        "place: from where the simulator would see the imagined frame, in metres from the true place; step: how far "
        "the step between two such poses departs from its action, the same number of it as the residual's.",
        "of the path: metres from where the actions so far lead to where those that the verifier infers lead. "
        "forward, as found: that departure in place of a residual, what a perfect verifier could tell by one step. "
        "given the way: where equally much was driven.",
        f"Place off by {_over_steps(rollouts.place, 2)} m step by step; true frames are found "
        f"{rollouts.place_floor.mean():.2f} m from where they were seen. The path that the verifier infers is off by "
        f"{_over_steps(rollouts.strayed, 2)} m, between true frames by {_over_steps(rollouts.strayed_true, 2)} m.",
        f"LPIPS {_over_steps(rollouts.lpips)} (of the tokenizer alone {_over_steps(rollouts.lpips_floor)}); PSNR "
        f"{_over_steps(rollouts.psnr, 1)} dB ({_over_steps(rollouts.psnr_floor, 1)}), step by step.",
        f"A step counts as not followed if its residual is above {rollouts.threshold:.2f}, as are "
        f"{1 - NOT_FOLLOWED:.0%} of the steps between true frames. Imagined steps that are not followed, step by step: "
        f"{', '.join(f'{share:.0%}' for share in missed)}.",
    ]


def interval(found: Interval) -> str:
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _over_steps(values: np.ndarray, digits: int = 3) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values.mean(0))


def draw(bench: Bench, results: Path, folder: Path) -> list[Path]:
    """The score over the steps, some rollouts frame by frame, and what the tokenizer keeps of a frame."""
    rollouts = Rollouts.load(rollouts_file(bench.cell, results))
    order = np.argsort(rollouts.score.mean(1))
    chosen = [int(order[round(q * (len(order) - 1))]) for q in SHOWN]
    paths = {name: folder / f"navigation-{name}.png" for name in FIGURES}
    curves = {Look("true frames", TRUE, "s"): rollouts.score_true, Look("imagined frames", IMAGINED): rollouts.score}
    consistency_per_step(paths["consistency"], curves, title="Consistency under the true actions")
    panels = {f"case {k}": (rollouts.score_true[k], rollouts.score[k]) for k in chosen}
    followed_steps(paths["following"], panels, threshold=rollouts.threshold)
    inferred_against_found(
        paths["path"],
        {f"after {k} steps": (rollouts.strayed[:, k - 1], rollouts.place[:, k - 1]) for k in STRAYED_AFTER},
        inferred="m off, as the verifier infers",
        found="m off, as found in the simulator",
    )
    kit, instances = _kit(bench), bench.cell.instances(bench.protocol)
    with closing(tasks.make(bench.cell.task, size=kit.model.observation_size)) as task:
        shown = {k: imagine(kit, instances[k], bench.protocol, task) for k in chosen}  # type: ignore[arg-type]
        frames = render_states(task, np.stack([i.start_state for i in instances[:RECONSTRUCTED]]))
    rows = [row for k in chosen for row in _rollout_rows(f"case {k}", kit, shown[k], rollouts, k)]
    titles = ["now", *(f"step {t + 1}" for t in range(rollouts.score.shape[1]))]
    sheet(paths["rollouts"], rows, titles=titles, heading="Recorded above imagined under the true actions")
    _draw_tokenizer(paths["tokenizer"], kit, torch.from_numpy(frames))
    return list(paths.values())


def _rollout_rows(name: str, kit: NavigationKit, shown: Imagined, rollouts: Rollouts, case: int) -> list[SheetRow]:
    score, true = rollouts.score[case], rollouts.score_true[case]
    missed = [int(t) + 1 for t in np.flatnonzero(score > rollouts.threshold)]
    return [
        SheetRow(name, "recorded", shown.true.numpy(), _noted(true)),
        SheetRow(name, "imagined", pixels(kit.model.decode(shown.latents)), _noted(score), marked=missed),
    ]


def _noted(residuals: np.ndarray) -> list[str]:
    """Under the frames; no step leads to the first."""
    return ["", *(f"residual {value:.2f}" for value in residuals)]


def _draw_tokenizer(path: Path, kit: NavigationKit, frames: Tensor) -> None:
    drawn = kit.model.decode(kit.model.encode(frames))
    ratios = [f"{float(v):.1f} dB" for v in psnr(drawn, frames.float() / 255)]
    rows = [SheetRow("frames", "recorded", frames.numpy()), SheetRow("frames", "16 tokens", pixels(drawn), ratios)]
    sheet(path, rows, heading="Held-out frames and what the tokenizer keeps of them")


def pixels(images: Tensor) -> np.ndarray:
    return (images * 255).round().to(torch.uint8).numpy()


def as_json(found: Sequence[Relation]) -> list[dict[str, Any]]:
    return [
        {"residual": r.residual, "error": r.error} | {name: vars(getattr(r, name)) for name in KINDS} for r in found
    ]
