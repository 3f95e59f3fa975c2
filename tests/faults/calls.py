"""Calls of the public Python interface with arguments that make no sense: `CALLS[name]` draws one and makes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import acid
from acid.data import EpisodeWriter, split
from acid.nn.budget import building
from acid.planning import ICEM, MPPI, Adaptive, Constant, Custom, GoalDistance, Gradient, Shooting
from acid.types import ActionScaler, Problem
from acid.verifier import FitConfig, TransformerSize
from acid.verifier.flow import FlowConfig
from faults.damage import odd

SEARCHES = (acid.CEM, ICEM, MPPI, Gradient, Shooting)
SMALL = acid.CEM(samples=4, iterations=1, elites=2)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool, torch.complex64]
Draw = Callable[[Any], Any]

shapes = st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=5)
fills = st.sampled_from([0.0, 1.0, -1.0, float("nan"), float("inf"), 1e20, 1e-24])
tensors = st.builds(lambda s, f, t: torch.full(s, f).to(t), shapes, fills, st.sampled_from(DTYPES))
anything = odd | tensors | tensors.filter(lambda t: not t.is_complex()).map(lambda t: t.numpy())


class Point:
    """A world model of one token of two numbers, to which an action is added."""

    scaler = ActionScaler((0.0, 0.0), (1.0, 1.0))

    def encode(self, observation: Tensor) -> Any:
        return observation

    def rollout(self, latent: Tensor, actions: Tensor) -> Any:
        return (latent[:, None, None] + actions[..., None, :].cumsum(2)).to(latent)

    def infer(self, latent: Tensor, next_latent: Tensor) -> Any:
        return (next_latent - latent)[..., 0, :]


class Remembering(Point):
    """The same for several context frames, and what was done between them."""

    def rollout(self, latent: Tensor, actions: Tensor, past_actions: Tensor | None = None) -> Any:
        return super().rollout(latent if latent.dim() == 3 else latent[:, -1], actions)


def _plan(cost: Any = None, model: Any = None, **options: Any) -> None:
    chosen = {"search": SMALL, "horizon": 2} | options
    planner = acid.Planner(model or Point(), cost or acid.acid_cost(Point()), **chosen)
    plan = planner.plan(torch.zeros(2, 1, 2), torch.ones(2, 1, 2))
    assert plan.actions.isfinite().all(), "a plan that is not finite"
    repr(plan)


def search_options(draw: Draw, folder: Path) -> None:
    kind = draw(st.sampled_from(SEARCHES))
    name = draw(st.sampled_from([field.name for field in dataclasses.fields(kind)]))
    found = kind(**{name: draw(odd)})
    assert found is not None


def planner_options(draw: Draw, folder: Path) -> None:
    names = ["horizon", "scaler", "action_size", "bounds", "chunk", "max_memory", "parametrisation", "repeats", "noise"]
    _plan(**{draw(st.sampled_from([*names, "proposal", "observer", "precision"])): draw(odd)})


def bounds(draw: Draw, folder: Path) -> None:
    _plan(bounds=(draw(odd), draw(odd)))


def problems(draw: Draw, folder: Path) -> None:
    planner = acid.Planner(Remembering(), acid.acid_cost(Point()), SMALL, horizon=2)
    start, goal = draw(st.just(torch.zeros(2, 3, 1, 2)) | anything), draw(st.just(torch.ones(2, 1, 2)) | anything)
    planner.solve(Problem(start, goal, draw(st.none() | anything)))


def observations(draw: Draw, folder: Path) -> None:
    acid.Planner(Point(), acid.goal_cost(), SMALL, horizon=2).plan(draw(tensors), draw(tensors))


def seeds_and_starts(draw: Draw, folder: Path) -> None:
    planner = acid.Planner(Point(), acid.goal_cost(), SMALL, horizon=2)
    seed, start = draw(odd), draw(tensors)
    planner.plan(torch.zeros(2, 1, 2), torch.ones(2, 1, 2), seed=seed)
    planner.plan(torch.zeros(2, 1, 2), torch.ones(2, 1, 2), initial=start)


def costs(draw: Draw, folder: Path) -> None:
    values = draw(anything)
    term = Custom(lambda trajectory, goal: values, weight=draw(st.sampled_from([Constant(), Adaptive(0.5)])))
    _plan(acid.Cost([GoalDistance(), term]))


def cost_dtypes(draw: Draw, folder: Path) -> None:
    dtype, scale = draw(st.sampled_from(DTYPES)), draw(fills)
    term = Custom(lambda t, goal: (scale * t.actions.square().sum((-1, -2))).to(dtype), weight=Adaptive(0.5))
    _plan(acid.Cost([GoalDistance(), term]))


def weights_of_terms(draw: Draw, folder: Path) -> None:
    kind = draw(st.sampled_from([Constant, Adaptive, lambda v: acid.acid_cost(Point(), v), GoalDistance]))
    kind(draw(odd))


def scalers(draw: Draw, folder: Path) -> None:
    made = ActionScaler(
        draw(st.just((0.0, 1.0)) | anything), draw(st.just((1.0, 2.0)) | anything), draw(st.just(1) | odd)
    )
    made.normalise(draw(tensors))


def scaled_tensors(draw: Draw, folder: Path) -> None:
    made, values = ActionScaler((0.5, 1.5), (1.5, 2.5), 2), draw(tensors)
    normalised = made.normalise(values)
    same = made.normalise(values.to(normalised.dtype))
    assert torch.allclose(normalised, same, equal_nan=True), "whole numbers are scaled otherwise"


def world_models(draw: Draw, folder: Path) -> None:
    model, name, returned = Point(), draw(st.sampled_from(["encode", "rollout"])), draw(anything)
    setattr(model, name, lambda *_: returned)
    _plan(model=model)


def verifiers(draw: Draw, folder: Path) -> None:
    verifier, returned = Point(), draw(anything)
    verifier.infer = lambda *_: returned  # type: ignore[method-assign]
    _plan(acid.acid_cost(verifier))


def fit_settings(draw: Draw, folder: Path) -> None:
    name = draw(st.sampled_from([field.name for field in dataclasses.fields(FitConfig)]))
    FitConfig(**{name: draw(odd)})


def fitted_tables(draw: Draw, folder: Path) -> None:
    table = [torch.randn(8, 1, 2), torch.randn(8, 2), torch.arange(8) // 4]
    for place in draw(st.sets(st.sampled_from([0, 1, 2]), min_size=1, max_size=2)):
        table[place] = draw(tensors)
    training = FitConfig(steps=1, batch_size=2, held_out=0.5)
    acid.Verifier.fit(*table, size=TransformerSize(8, 1, 2), training=training)


def network_sizes(draw: Draw, folder: Path) -> None:
    """Those that a machine of half a GiB cannot hold are refused before memory is taken."""
    kind = draw(st.sampled_from([TransformerSize, FlowConfig]))
    name = draw(st.sampled_from([field.name for field in dataclasses.fields(kind)]))
    small = {"width": 8, "depth": 1, "heads": 2} | ({name: draw(odd)} if kind is TransformerSize else {})
    flow = {"latent_size": 2, "tokens": 4, "action_size": 2, "size": TransformerSize(**small)}
    config = FlowConfig(**flow | ({name: draw(odd)} if kind is FlowConfig else {}))
    with mock.patch("acid.nn.budget._memory", return_value=2**29), building("a verifier"):
        acid.Verifier(config)


class Room:
    """An environment of gymnasium's, which answers the same five times and then ends."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.left = answer, 5

    def reset(self, *, seed: int) -> Any:
        return np.zeros((1, 2)), {}

    def step(self, action: np.ndarray) -> Any:
        self.left -= 1
        return self.answer if self.left else (np.zeros((1, 2)), 0.0, True, False, {})


def controllers(draw: Draw, folder: Path) -> None:
    controller = acid.Controller(acid.Planner(Point(), acid.goal_cost(), SMALL, horizon=2), draw(st.just(1) | odd))
    seen = draw(st.just(np.ones((1, 2))) | anything)
    answer = draw(st.just((seen, 0.0, False, False, {})) | anything)
    goal, budget, history = draw(st.just(np.ones((1, 2))) | anything), draw(st.just(3) | odd), draw(st.just(1) | odd)
    controller.run(Room(answer), goal, budget=budget, history=history)


def splits(draw: Draw, folder: Path) -> None:
    number = st.sampled_from([-1, 0, 1, 2, 10, 0.1, 0.5, 1.0, float("nan"), None, "x", True])
    split(draw(number), draw(number), draw(number))


def written_episodes(draw: Draw, folder: Path) -> None:
    arrays = tensors.filter(lambda t: not t.is_complex()).map(lambda t: t.numpy()) | st.just(np.array(["x"]))
    with EpisodeWriter(folder / "written.h5") as writer:
        for _ in range(2):
            writer.write(draw(st.dictionaries(st.sampled_from(["action", "pixels", "ep_len", "x/y", ""]), arrays)))


CALLS: dict[str, Callable[[Draw, Path], None]] = {
    made.__name__: made
    for made in (
        *(search_options, planner_options, bounds, problems, observations, seeds_and_starts, costs, cost_dtypes),
        *(
            weights_of_terms,
            scalers,
            scaled_tensors,
            world_models,
            verifiers,
            fit_settings,
            fitted_tables,
            network_sizes,
        ),
        *(controllers, splits, written_episodes),
    )
}
