"""What a world model and its verifier know, found from recorded episodes alone: no simulator, no task.

Held-out windows of recorded frames and actions are imagined again. Reality and imagination are then compared, and what
the verifier says about each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import checkpoint, models
from acid.data import Episodes, Windows, fingerprint, split
from acid.errors import AcidError, DataError
from acid.evaluation import Interval, bootstrap_mean, rank_correlation
from acid.evaluation.kits import Kit, kit_of
from acid.evaluation.table import interval, markdown
from acid.planning import Adaptive, Constant, Cost
from acid.planning.imagination import takes_seeds
from acid.training.dataset import steps_between
from acid.types import Trajectory
from acid.verifier import Directions, Verifier

LAMBDAS = (0.0, 0.02, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Checkup:
    """What was found. Intervals are over the windows."""

    model: str
    data: str
    episodes: str  # which of the dataset's
    windows: int
    horizon: int
    directions: Directions  # of an action, as real transitions tell them
    drift: tuple[Interval, ...]  # by step: ‖ẑ − z‖² over ‖z − z_0‖², the change that really happened
    real: Interval  # residual ‖a − G(z, z')‖² of recorded transitions, per number of an action
    imagined: Interval  # of imagined ones
    swapped: Interval  # of recorded transitions with the action of another window
    static: Interval  # of a world that stands still
    told_apart: float  # how often the residual is lower for the recorded action than for another window's, really
    told_apart_imagined: float  # the same in imagination
    static_believed: float  # share of transitions where standing still fits the action better than what happened
    error_seen: float  # rank correlation of the residual of an imagined step and its error ‖ẑ − z‖²
    ranks: dict[float, Interval]  # by λ: share of other plans that cost less than the recorded one
    suggested: float  # λ; 0 if none is certainly better than 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        rows = [
            [
                "directions of an action that two frames tell",
                f"{self.directions.told} of {len(self.directions.shares)}",
            ],
            *([f"imagination: error of step {h} / real change", interval(d)] for h, d in enumerate(self.drift, 1)),
            ["residual, recorded transitions", interval(self.real)],
            ["residual, imagined transitions", interval(self.imagined)],
            ["residual, recorded transitions with another action", interval(self.swapped)],
            ["residual, a world that stands still", interval(self.static)],
            ["recorded action preferred to another, recorded", f"{self.told_apart:.2f}"],
            ["recorded action preferred to another, imagined", f"{self.told_apart_imagined:.2f}"],
            ["standing still preferred to what happened", f"{self.static_believed:.2f}"],
            ["rank correlation: residual, error of an imagined step", f"{self.error_seen:.2f}"],
            *([f"plans cheaper than the recorded one, λ {lam:g}", interval(r)] for lam, r in self.ranks.items()),
        ]
        title = f"{self.model}, {self.windows} windows of {self.horizon} steps, {self.episodes} of {self.data}"
        return "\n".join([markdown([title, ""], rows, texts=1), "", *self.findings()])

    def findings(self) -> list[str]:
        """What follows, in plain words."""
        told, size = self.directions.told, len(self.directions.shares)
        said = [
            f"- Two frames tell {told} of {size} directions of an action. "
            + (
                "ACID can check the imagination along these; along the others it only keeps plans near the data."
                if told
                else "ACID cannot check this imagination; it only keeps plans near the data."
            )
        ]
        late = next((h for h, d in enumerate(self.drift, 1) if d.mean >= 1), None)
        said.append(
            "- Every imagined step is closer to what happened than standing still is."
            if late is None
            else f"- From step {late} on, imagining is no better than assuming that nothing changes: plan less far."
        )
        if self.static_believed > 0.5:
            said.append(
                "- A world that stands still looks more consistent than what really happened: a plan that is imagined "
                "to do nothing is not found out."
            )
        if self.imagined.high < self.real.low:
            said.append(
                "- Imagined transitions look more consistent than recorded ones: a low residual does not mean that "
                "the imagination is right."
            )
        zero, best = self.ranks[0.0], self.ranks[self.suggested]
        said.append(
            f"- Suggested λ: {self.suggested:g} ({best.mean:.1%} of other plans cost less than the recorded one; "
            f"{zero.mean:.1%} without consistency)."
            if self.suggested
            else "- Suggested λ: none. Among plans like the data's no λ finds the recorded one certainly better than "
            "the goal cost alone does; the published one is 0.07."
        )
        return said


@torch.no_grad()
def check_up(
    folder: Path,
    data: Path,
    *,
    horizon: int = 5,
    windows: int = 128,
    pool: int = 32,
    device: str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Checkup:
    """Look at the world model and the verifier of a cell's folder (`model`, `verifier`) with recorded episodes.

    pool: recorded plans that each recorded plan is compared with, to find a λ.
    """
    for name, value, least in (("horizon", horizon, 1), ("windows", windows, 8), ("pool", pool, 2)):
        if value < least:
            raise AcidError(f"{name} must be at least {least}, got {value}")
    kit, kind, stored = _load(folder, device)
    episodes = Episodes(data)
    ids, which = _unseen(episodes, stored)
    encoded = _encode(kit, kind, episodes, ids, horizon, windows, progress)
    if len(encoded.actions) < 8:
        raise DataError(f"{data} has {len(encoded.actions)} windows of {horizon} steps; a check-up needs at least 8")
    return _measure(
        kit, encoded, pool=min(pool, len(encoded.actions)), title=(kind, data.name, which), progress=progress
    )


def keep_directions(folder: Path, found: Checkup) -> None:
    """Write what was found about directions into the report of a cell's verifier, so that its parts can be used."""
    verifier = folder / "verifier"
    report = checkpoint.load(verifier).metadata.get("report")
    if report is None:
        raise AcidError(f"{verifier} has no report to add directions to; fit it again with `acid train verifier`")
    checkpoint.annotate(verifier, report={**report, "directions": asdict(found.directions)})


@dataclass(frozen=True)
class Encoded:
    """M recorded windows as latents of the world model."""

    start: Tensor  # [M, P, D] or [M, T, P, D]
    latents: Tensor  # [M, H+1, P, D]
    actions: Tensor  # [M, H, A], normalised


def _load(folder: Path, device: str) -> tuple[Kit, str, dict[str, Any]]:
    for part in ("model", "verifier"):
        if not (folder / part).is_dir():
            raise AcidError(f"{folder} is not the folder of a cell: it has no subfolder {part!r}")
    stored = checkpoint.load(folder / "model")
    model = models.load(folder / "model", device=device)
    verifier = Verifier.load(folder / "verifier", device=device)
    metadata = checkpoint.load(folder / "verifier").metadata
    return kit_of(stored.kind)(model, verifier, metadata), stored.kind, dict(stored.metadata)


def _unseen(episodes: Episodes, metadata: dict[str, Any]) -> tuple[np.ndarray, str]:
    """The episodes that the model was not trained on, as far as is known."""
    recorded = metadata.get("partition") or {}
    collected = (metadata.get("data") or {}).get("collection")  # the same one gives the same episodes
    again = collected is not None and episodes.attributes.get("collection") == collected
    if recorded and (again or recorded.get("fingerprint") == fingerprint(episodes)):
        held_out = split(recorded["episodes"], recorded["held_out"], recorded["seed"]).held_out
        if len(held_out):
            return held_out, f"the {len(held_out)} held-out episodes"
    return np.arange(len(episodes)), f"all {len(episodes)} episodes (not the dataset that the model was trained on)"


def _encode(
    kit: Kit, kind: str, episodes: Episodes, ids: np.ndarray, horizon: int, count: int, progress: Progress
) -> Encoded:
    model, context = kit.model, kit.model.context
    scaler = model.scaler
    displaced = models.KINDS[kind].actions == "displacements"
    taken = steps_between(episodes) if displaced else None
    every = Windows(episodes, ids, context + horizon, scaler.frameskip)
    chosen = np.sort(every.sample(count))
    starts, latents, actions = [], [], []
    for number, window in enumerate(chosen):
        frames = torch.from_numpy(episodes.read("pixels", every.frame_rows([window])[0]))
        if frames.shape[1] != model.observation_size:
            raise DataError(
                f"the frames of {episodes.path} are {frames.shape[1]} px, the model looks at {model.observation_size}"
            )
        rows = every.action_rows([window])[0][(context - 1) * scaler.frameskip :]
        env = episodes.read("action", rows) if taken is None else taken[rows]
        encoded = model.encode(frames[:, None].expand(-1, context, -1, -1, -1) if context > 1 else frames)
        encoded = encoded if encoded.dim() == 3 else encoded[:, -1]
        starts.append(model.encode(frames[None, :context])[0] if context > 1 else encoded[0])
        latents.append(encoded[context - 1 :])
        actions.append(scaler.normalise(torch.from_numpy(env).float()))
        progress(number + 1, len(chosen))
    where = latents[0].device
    return Encoded(torch.stack(starts), torch.stack(latents), torch.stack(actions).to(where))


def _imagine(kit: Kit, start: Tensor, now: Tensor, actions: Tensor) -> Trajectory:
    """Trajectories [B, N, ...] of actions [B, N, H, A]."""
    seeds = {"seeds": [0] * len(start)} if takes_seeds(kit.model) else {}
    imagined = kit.model.rollout(start, actions, **seeds)
    return Trajectory(torch.cat([now[:, None, None].expand(-1, actions.shape[1], 1, -1, -1), imagined], 2), actions)


def _measure(kit: Kit, encoded: Encoded, *, pool: int, title: tuple[str, str, str], progress: Progress) -> Checkup:
    consistency, size = kit.consistency(Constant(1.0)), encoded.actions.shape[-1]
    others = torch.roll(encoded.actions, len(encoded.actions) // 2, 0)
    now, end = encoded.latents[:, 0], encoded.latents[:, 1:]

    def residuals(latents: Tensor, actions: Tensor) -> Tensor:
        """[M, H], per number of an action."""
        return consistency.per_step(Trajectory(latents[:, None], actions[:, None]))[:, 0] / size

    imagined = _imagine(kit, encoded.start, now, encoded.actions[:, None]).latents[:, 0]
    still = encoded.latents[:, :1].expand_as(encoded.latents)
    real, of_imagined = residuals(encoded.latents, encoded.actions), residuals(imagined, encoded.actions)
    swapped, static = residuals(encoded.latents, others), residuals(still, encoded.actions)
    wrong = (imagined[:, 1:] - end).square().flatten(2).sum(-1)
    change = (end - now[:, None]).square().flatten(2).sum(-1)
    recorded = Trajectory(encoded.latents[:, None], encoded.actions[:, None])
    asked, inferred = (f(recorded).flatten(0, 2).cpu() for f in (consistency.view.asked, consistency.view.inferred))
    ranks = _ranks(kit, encoded, pool, progress)
    return Checkup(
        model=title[0],
        data=title[1],
        episodes=title[2],
        windows=len(encoded.actions),
        horizon=encoded.actions.shape[1],
        directions=Directions.measure(asked, asked - inferred),
        drift=tuple(_ratio(wrong[:, h], change[:, h]) for h in range(wrong.shape[1])),
        real=_mean(real),
        imagined=_mean(of_imagined),
        swapped=_mean(swapped),
        static=_mean(static),
        told_apart=_share(real < swapped),
        told_apart_imagined=_share(of_imagined < residuals(imagined, others)),
        static_believed=_share(static < real),
        error_seen=rank_correlation(of_imagined.flatten().numpy(force=True), wrong.flatten().numpy(force=True)),
        ranks={lam: bootstrap_mean(values) for lam, values in ranks.items()},
        suggested=suggest(ranks),
    )


def _ranks(kit: Kit, encoded: Encoded, pool: int, progress: Progress) -> dict[float, np.ndarray]:
    """By λ and window: the share of other recorded plans that cost less than the one that led to the goal.

    The goal is the window's last frame. Candidates are plans of other windows, so that all are like the data's, and a
    term that only prefers such plans gains nothing.
    """
    costs = {lam: Cost([kit.goal(), kit.consistency(Adaptive(lam))]) for lam in LAMBDAS}
    found: dict[float, list[float]] = {lam: [] for lam in LAMBDAS}
    count = len(encoded.actions)
    for window in range(count):
        plans = [(window + other * count // pool) % count for other in range(pool)]  # the first is its own
        actions = encoded.actions[plans][None]
        row = slice(window, window + 1)
        trajectory = _imagine(kit, encoded.start[row], encoded.latents[row, 0], actions)
        goal = encoded.latents[row, -1]
        terms = {term.name: term(trajectory, goal) for term in costs[1.0].terms}
        for lam, cost in costs.items():
            total = cost.weigh(terms).total[0]
            found[lam].append(float((total[1:] < total[0]).float().mean()))
        progress(window + 1, count)
    return {lam: np.array(values) for lam, values in found.items()}


def suggest(ranks: dict[float, np.ndarray]) -> float:
    """The λ of the best mean rank if it is certainly better than 0, else 0."""
    best = min(ranks, key=lambda lam: (ranks[lam].mean(), lam))
    return best if best and bootstrap_mean(ranks[best] - ranks[0.0]).high < 0 else 0.0


def _mean(values: Tensor) -> Interval:
    """Over windows [M, H]."""
    return bootstrap_mean(values.mean(1).numpy(force=True))


def _ratio(errors: Tensor, changes: Tensor) -> Interval:
    """Mean error over mean change, with an interval from errors alone: single windows may hardly change."""
    return bootstrap_mean((errors / changes.mean()).numpy(force=True))


def _share(true: Tensor) -> float:
    return float(true.float().mean())
