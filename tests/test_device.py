"""Devices: their names, and planning without reading a number back from a GPU in every iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from fake_cuda import CUDA, as_cuda, cuda_tensor, fake_cuda
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, unset_fake_temporarily

from acid.device import device_of, resolve_device
from acid.errors import AcidError, PlanningError
from acid.planning import CEM, ICEM, MPPI, SEARCHES, Arc, Gradient, Planner, Search, Shooting, StraightLine, acid_cost
from acid.planning.finite import FiniteCheck
from acid.planning.observer import Iteration
from acid.planning.search import Outcome
from acid.planning.timing import Stopwatch
from acid.types import ActionScaler, Problem
from acid.verifier import FlowConfig, TransformerSize, Verifier

PROBLEMS, HORIZON, TOKENS, LATENT, ACTION = 3, 4, 2, 6, 3
SCALER = ActionScaler((0.3, 0.0, 0.0), (0.9, 1.0, 1.0))
SMALL: dict[str, Search] = {
    "cem": CEM(samples=12, iterations=3, elites=4),
    "icem": ICEM(samples=12, iterations=3, elites=4),
    "mppi": MPPI(samples=12, iterations=3),
    "gradient": Gradient(samples=4, iterations=3),
    "shooting": Shooting(samples=12),
}
every_search = pytest.mark.parametrize("search", SMALL.values(), ids=SMALL)


class World(nn.Module):
    """Tokens that one linear map moves on, given the action."""

    scaler = SCALER

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Linear(5, TOKENS * LATENT)
        self.move = nn.Linear(TOKENS * LATENT + ACTION, TOKENS * LATENT)

    def encode(self, observation: Tensor) -> Tensor:
        return self.look(observation).unflatten(-1, (TOKENS, LATENT))

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        state = latent.flatten(1)[:, None].expand(-1, actions.shape[1], -1)
        states = []
        for action in actions.unbind(2):
            state = self.move(torch.cat([state, action], -1))
            states.append(state)
        return torch.stack(states, 2).unflatten(-1, (TOKENS, LATENT))


class NoisyWorld(World):
    """Each rollout is off by a draw of its seed."""

    def rollout(self, latent: Tensor, actions: Tensor, *, seeds: Sequence[int] | None = None) -> Tensor:
        imagined = super().rollout(latent, actions)
        assert seeds is not None
        draws = [torch.randn(LATENT, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return imagined + 0.1 * torch.stack(draws).to(imagined.device)[:, None, None, None]


def parts(kind: type[World] = World) -> tuple[World, Verifier]:
    torch.manual_seed(0)
    world = kind().requires_grad_(False)
    verifier = Verifier(FlowConfig(LATENT, TOKENS, ACTION, TransformerSize(12, 1, 2)), SCALER).ready()
    return world, verifier


def observations() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    observation, goal = torch.randn(2, PROBLEMS, 5, generator=generator)
    return observation, goal


@contextmanager
def on_cuda(search: Search, kind: type[World] = World, **options) -> Iterator[tuple[Planner, Problem]]:
    """A planner whose networks are on the pretended GPU, and problems for it."""
    made, seen = parts(kind), observations()
    with fake_cuda() as mode:
        model, verifier = (as_cuda(part, mode) for part in made)
        start, goal = (model.encode(cuda_tensor(part, mode)) for part in seen)
        with unset_fake_temporarily():  # options may be numbers to be checked
            planner = Planner(model, acid_cost(verifier, 0.3), search, horizon=HORIZON, **options)
        yield planner, Problem(start, goal)


@torch.no_grad()
def run(planner: Planner, problem: Problem) -> Outcome:
    """The search alone: the checks before and after it do read numbers."""
    objective, mean, streams = planner.prepare(problem, 0, None, Stopwatch())
    outcome = planner.search.run(objective, mean, streams)
    tensors = [outcome.candidates, outcome.trace.best, *outcome.trace.costs.values(), *outcome.trace.weights.values()]
    assert {tensor.device for tensor in tensors} == {CUDA}
    return outcome


def test_the_searches_here_are_all_there_are() -> None:
    assert {name: type(search) for name, search in SMALL.items()} == SEARCHES


@every_search
@pytest.mark.parametrize("chunk", [None, 7])
def test_a_search_stays_on_the_device_and_reads_nothing_back(search: Search, chunk: int | None) -> None:
    with on_cuda(search, chunk=chunk) as (planner, problem):
        outcome = run(planner, problem)
    assert outcome.candidates.shape == (PROBLEMS, HORIZON, ACTION)
    assert outcome.trace.best.shape == (getattr(search, "iterations", 1), PROBLEMS)
    assert outcome.candidates.dtype == outcome.trace.best.dtype == torch.float32


@every_search
def test_showing_a_search_to_an_observer_reads_nothing_back(search: Search) -> None:
    shown = []
    with on_cuda(search, observer=shown.append) as (planner, problem):
        run(planner, problem)
    assert len(shown) == getattr(search, "iterations", 1)
    assert {iteration.total.device for iteration in shown} == {CUDA}


@every_search
def test_so_does_one_with_repeats_of_a_stochastic_model(search: Search) -> None:
    with on_cuda(search, NoisyWorld, repeats=2) as (planner, problem):
        run(planner, problem)


@pytest.mark.parametrize("parametrisation", [Arc(SCALER), StraightLine()], ids=["arc", "line"])
def test_so_does_one_for_the_variables_of_a_motion(parametrisation: Arc | StraightLine) -> None:
    with on_cuda(SMALL["cem"], parametrisation=parametrisation) as (planner, problem):
        outcome = run(planner, problem)
    assert outcome.candidates.shape == (PROBLEMS, 1, parametrisation.size)


@every_search
def test_so_does_one_within_bounds(search: Search) -> None:
    with on_cuda(search, bounds=(-1.0, 1.0)) as (planner, problem):
        run(planner, problem)


def test_a_tolerance_has_to_read_who_has_converged() -> None:
    search = CEM(samples=12, iterations=3, elites=4, tolerance=0.1)
    with on_cuda(search) as (planner, problem), pytest.raises(DataDependentOutputException):
        run(planner, problem)


def test_the_pretended_gpu_notices_a_tensor_that_was_left_behind() -> None:
    class Forgetful(World):
        def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
            return super().rollout(latent, actions) + torch.zeros(LATENT)

    mixed = pytest.raises(RuntimeError, match="two devices, meta and cpu")
    with on_cuda(SMALL["cem"], Forgetful) as (planner, problem), mixed:
        run(planner, problem)


@every_search
def test_a_plan_comes_back_on_the_device_of_the_model(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `plan` but the three places where it may wait: before the search, after it, and at the end."""
    monkeypatch.setattr(Problem, "check", lambda self, action_size: None)
    monkeypatch.setattr(FiniteCheck, "finish", lambda self: None)
    monkeypatch.setattr(Stopwatch, "wait", lambda self, device: None)
    with on_cuda(search) as (planner, _):
        plan = planner.plan(torch.zeros(PROBLEMS, 5, device="cpu"), torch.ones(PROBLEMS, 5, device="cpu"))
    tensors = [plan.actions, plan.env_actions, plan.imagined, *plan.costs.values(), *plan.per_step.values()]
    assert {tensor.device for tensor in tensors if tensor is not None} == {CUDA}
    assert plan.per_step["consistency"].shape == (PROBLEMS, HORIZON)


def test_hopeless_candidates_are_reported_after_the_search_where_looking_means_waiting() -> None:
    with on_cuda(SMALL["cem"]) as (planner, problem):
        objective, mean, streams = planner.prepare(problem, 0, None, Stopwatch())
        planner.search.run(objective, mean, streams)
        with pytest.raises(DataDependentOutputException):
            objective.finite.finish()


@every_search
def test_noise_of_the_device_is_that_of_the_cpu_on_the_cpu(search: Search) -> None:
    world, verifier = parts()
    plans = [
        Planner(world, acid_cost(verifier), search, horizon=HORIZON, noise=noise).plan(*observations(), seed=3)
        for noise in ("cpu", "device")
    ]
    assert torch.equal(plans[0].actions, plans[1].actions)


@every_search
def test_bfloat16_plans_in_single_precision_around_narrow_networks(search: Search) -> None:
    class Listening(World):
        def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
            assert latent.dtype == actions.dtype == torch.float32
            imagined = super().rollout(latent, actions)
            assert imagined.dtype == torch.bfloat16
            return imagined

    model, verifier = parts(Listening)
    plan = Planner(model, acid_cost(verifier, 0.3), search, horizon=HORIZON, precision="bfloat16").plan(*observations())
    tensors = [plan.actions, plan.imagined, plan.trace.best, *plan.costs.values(), *plan.per_step.values()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    full = Planner(parts()[0], acid_cost(verifier, 0.3), search, horizon=HORIZON).plan(*observations())
    assert not torch.equal(plan.imagined, full.imagined)
    torch.testing.assert_close(plan.costs["goal"], full.costs["goal"], rtol=0.2, atol=0.2)


def test_mixed_precision_imagines_in_single_and_judges_in_bfloat16() -> None:
    model, verifier = parts()
    shown: list[Iteration] = []
    for precision in ("float32", "mixed"):
        search, watch = CEM(samples=16, iterations=1, elites=4), {"precision": precision, "observer": shown.append}
        Planner(model, acid_cost(verifier, 0.3), search, horizon=HORIZON, **watch).plan(*observations())
    single, mixed = (iteration.terms for iteration in shown)
    assert torch.equal(mixed["goal"], single["goal"])
    assert not torch.equal(mixed["consistency"], single["consistency"])
    torch.testing.assert_close(mixed["consistency"], single["consistency"], rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "gpu"}, "unknown place to draw noise 'gpu'"),
        ({"precision": "bfloat61"}, "unknown precision 'bfloat61'; did you mean 'bfloat16'"),
    ],
)
def test_misspelt_options_are_refused(options: dict, message: str) -> None:
    model, verifier = parts()
    with pytest.raises(PlanningError, match=message):
        Planner(model, acid_cost(verifier), SMALL["cem"], horizon=HORIZON, **options)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.usefixtures("two_gpus")
def test_devices_by_name_where_there_are_gpus() -> None:
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(AcidError, match=r"device 'cuda:2' is not available here; available: auto, cpu, .*cuda:1, cuda"):
        resolve_device("cuda:2")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "device 'cuda' is not available here; available: auto, cpu"),
        ("mps", "device 'mps' is not available here; available: auto, cpu"),
        ("cup", "unknown device 'cup'; did you mean 'cpu'?"),
        ("", "unknown device ''; known: 'auto', 'cpu'"),
    ],
)
def test_devices_by_name_where_there_are_none(name: str, message: str) -> None:
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(AcidError) as caught:
        resolve_device(name)
    assert str(caught.value) == message


@pytest.mark.usefixtures("no_gpu")
def test_apple_devices_come_before_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto") == resolve_device("mps") == torch.device("mps")


def test_the_device_of_a_model() -> None:
    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(2, device="meta"))

    class Named:
        device = "meta"

    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")
    assert device_of(Buffered()) == torch.device("meta")
    assert device_of(Named()) == torch.device("meta")
    assert device_of(nn.Identity()) is None
    assert device_of(object()) is None
