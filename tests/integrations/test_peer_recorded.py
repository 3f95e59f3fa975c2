"""Our cost, models and planner beside what stable-worldmodel computed, as `peer_scene.py` recorded it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import peer_scene
import pytest
import torch
from peer_scene import APIS, ELITES, FIXTURES, FLAT, HORIZON, ITERATIONS, KINDS, SAMPLES, SEED, SIZES, SOLVERS
from torch import Tensor, nn

from acid.errors import PlanningError, ShapeError
from acid.integrations import peer_model
from acid.integrations.peer_cost import AcidObjective, PeerCost
from acid.integrations.peer_model import PeerModel
from acid.integrations.peer_solver import PlannerSolver
from acid.integrations.published import load_published
from acid.planning import CEM, Planner, cem, goal_cost
from acid.planning.search import Elites
from acid.types import ActionScaler, Problem, Trajectory


@pytest.fixture(params=APIS)
def told(request: pytest.FixtureRequest) -> dict[str, Tensor]:
    """What one of its two APIs computed."""
    recorded = np.load(FIXTURES / f"peer-{request.param}.npz")
    return {name: torch.from_numpy(recorded[name]) for name in recorded}


def under(told: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in told.items() if name.startswith(prefix)}


class Replay(nn.Module):
    """A network with stable-worldmodel's signatures that answers only what was recorded, and only to that."""

    def __init__(self, tape: dict[str, Tensor]) -> None:
        super().__init__()
        self.tape = tape
        self.calls = 0
        self.predictor = SimpleNamespace(num_frames=3, pos_embedding=torch.zeros(1, 12, sum(SIZES.values())))
        if "emb" in tape:
            self.action_encoder = self._embed
        else:
            self.extra_encoders = {
                name: _Encoder(self._embed if name == "action" else None, SIZES[name]) for name in ("action", "proprio")
            }

    def encode(self, info: dict[str, Tensor], emb_keys: Any = ()) -> dict[str, Tensor]:
        expected = peer_scene.info_of(peer_scene.scene())
        for name, value in info.items():
            torch.testing.assert_close(value, expected[name])
        assert set(emb_keys) == set(info) - {"pixels"}
        return {name: value for name, value in self.tape.items() if name.endswith("emb")}

    def predict(self, frames: Tensor, *_: Tensor) -> Tensor:
        torch.testing.assert_close(frames, self.tape[f"given{self.calls}"], rtol=0, atol=1e-5)
        self.calls += 1
        return self.tape[f"out{self.calls - 1}"]

    def _embed(self, actions: Tensor) -> Tensor:
        torch.testing.assert_close(actions, self.tape["plans"][0])
        return self.tape["embedded"]


class _Encoder:
    def __init__(self, embed: Any, size: int) -> None:
        self.embed, self.emb_dim = embed, size

    def __call__(self, values: Tensor) -> Tensor:
        return self.embed(values)


def replayed(told: dict[str, Tensor], kind: str) -> tuple[PeerModel, Any]:
    """The model, and an observation that it takes."""
    problem = peer_scene.scene()
    observation = problem["pixels"] if kind in FLAT else {name: problem[name] for name in ("pixels", "proprio")}
    return PeerModel(Replay(under(told, f"{kind}/tape/"))), observation


@pytest.mark.parametrize("kind", FLAT)
def test_its_cem_with_our_cost_keeps_the_elites_of_our_planner(
    told: dict[str, Tensor], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Tensor] = []

    def watched(total: Tensor, count: int) -> Elites:
        kept.append(lowest(total, count).index[0])
        return lowest(total, count)

    lowest = cem.lowest
    monkeypatch.setattr(cem, "lowest", watched)
    model = load_published(FIXTURES / kind, action_scaler="identity")
    planner = Planner(model, peer_scene.cost_of(), CEM(SAMPLES, ITERATIONS, ELITES), horizon=HORIZON)
    problem = peer_scene.scene()
    plan = planner.plan(problem["pixels"], problem["goal"], seed=[SEED])
    assert torch.equal(torch.stack(kept), told[f"{kind}/CEMSolver/elites"])
    torch.testing.assert_close(plan.actions[0], told[f"{kind}/CEMSolver/actions"], rtol=0, atol=1e-4)
    original = Planner(model, goal_cost(), planner.search, horizon=HORIZON)
    kept.clear()
    original.plan(problem["pixels"], problem["goal"], seed=[SEED])
    assert not torch.equal(torch.stack(kept), told[f"{kind}/CEMSolver/elites"])  # the consistency decides


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("solver", SOLVERS)
def test_costs_in_its_solvers_are_ours(told: dict[str, Tensor], kind: str, solver: str) -> None:
    model, problem = load_published(FIXTURES / kind, action_scaler="identity"), peer_scene.scene()
    now, goal = model.encode(problem["pixels"]), model.encode(problem["goal"])
    for candidates, costs in zip(told[f"{kind}/{solver}/candidates"], told[f"{kind}/{solver}/costs"], strict=True):
        imagined = model.rollout(now, candidates[None])
        start = now[:, None, None].expand(-1, len(candidates), -1, -1, -1)
        trajectory = Trajectory(torch.cat([start, imagined], 2), candidates[None])
        ours = peer_scene.cost_of().evaluate(trajectory, goal).total[0]
        torch.testing.assert_close(ours, costs, rtol=1e-4, atol=1e-4)
        assert costs.std() > 0.5  # far above the tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_reads_its_info_dict(told: dict[str, Tensor], kind: str) -> None:
    info: dict[str, Any] = under(told, f"{kind}/CEMSolver/")
    info |= {"pixels": torch.zeros(1, SAMPLES, 1, 0), "action_candidates": info["candidates"][-1:]}
    model = None if kind in FLAT else replayed(told, kind)[0]
    cost = peer_scene.cost_of(None if model is None else model.network)
    sources = () if model is None else model.sources
    torch.testing.assert_close(AcidObjective(cost, sources)(info)[0], info["costs"][-1], rtol=1e-5, atol=1e-5)
    if f"{kind}/judged" in told:  # its main branch has a place for objectives
        torch.testing.assert_close(told[f"{kind}/judged"], info["costs"][0], rtol=1e-5, atol=1e-5)
    del info["action_candidates"]
    with pytest.raises(PlanningError, match="no 'action_candidates'; use PeerCost"):
        AcidObjective(cost, sources)(info)


@pytest.mark.parametrize("kind", KINDS)
def test_its_models_imagine_the_same_in_our_planner(told: dict[str, Tensor], kind: str) -> None:
    model, observation = replayed(told, kind)
    imagined = model.rollout(model.encode(observation), told[f"{kind}/tape/plans"])
    expected = told[f"{kind}/tape/imagined"][:, :, 1:]
    if kind in FLAT:
        expected = expected[..., None, :]
    else:  # a token of the last frame lacks its action, and those before are without it here
        pixels, _, proprio = expected.split([SIZES["pixels"], SIZES["action"], SIZES["proprio"]], -1)
        expected = torch.cat([pixels, proprio[..., :1, :].expand(*proprio.shape)], -1)  # it counts the first copy
    torch.testing.assert_close(imagined, expected, rtol=0, atol=1e-5)
    assert model.network.calls == HORIZON


def test_past_actions_are_those_between_the_frames_of_a_context() -> None:
    """Three frames and two actions, as its main branch has them; a stand-in shows what the predictor is given."""

    class Network(Replay):
        def __init__(self) -> None:
            super().__init__({"emb": torch.zeros(1)})
            self.seen: list[tuple[Tensor, Tensor]] = []
            self.action_encoder = lambda actions: actions

        def predict(self, frames: Tensor, *actions: Tensor) -> Tensor:
            self.seen.append((frames, actions[0]))
            return frames + 1

    network = Network()
    model = PeerModel(network, ActionScaler((0.0,), (1.0,)))
    context, past = torch.arange(3.0).reshape(1, 3, 1, 1), torch.tensor([[[10.0], [11.0]]])
    planner = Planner(model, goal_cost(), CEM(samples=2, iterations=1, elites=1), horizon=2)
    planner.solve(Problem(context, torch.zeros(1, 1, 1), past))
    frames, actions = network.seen[0]
    assert frames[0, :, 0].tolist() == [0, 1, 2]
    assert actions[0, :2, 0].tolist() == [10, 11]
    frames, actions = network.seen[1]
    assert frames[0, :, 0].tolist() == [1, 2, 3]
    assert actions[0, 0, 0] == 11
    with pytest.raises(PlanningError, match="3 context frames need the 2 actions between them"):
        planner.solve(Problem(context, torch.zeros(1, 1, 1)))
    with pytest.raises(ShapeError, match=r"past actions must be \[B, T-1, A\] = \[1, 2, 1\]"):
        planner.solve(Problem(context, torch.zeros(1, 1, 1), past[:, :1]))


class TestRefusals:
    def test_a_model_of_another_kind(self) -> None:
        with pytest.raises(PlanningError, match="a Linear has no encode, predict, predictor"):
            PeerCost(nn.Linear(2, 2), goal_cost())

    def test_a_source_that_is_not_given(self, told: dict[str, Tensor]) -> None:
        model, observation = replayed(told, "prejepa")
        with pytest.raises(ShapeError, match="also needs the observation proprio"):
            model.encode(observation["pixels"])

    def test_pixels_that_are_no_images(self, told: dict[str, Tensor]) -> None:
        with pytest.raises(ShapeError, match=r"must be uint8 \[\.\.\., S, S, 3\], got torch.float32 \[1, 3, 8, 8\]"):
            replayed(told, "lewm")[0].encode(torch.zeros(1, 3, 8, 8))


class TestPlannerSolver:
    SCALER = ActionScaler((1.0, 1.0), (2.0, 2.0), frameskip=2)

    def solver(self, **options: Any) -> PlannerSolver:
        model = load_published(FIXTURES / "lewm", action_scaler=self.SCALER)
        planner = Planner(model, peer_scene.cost_of(), CEM(SAMPLES, ITERATIONS, ELITES), horizon=HORIZON)
        return PlannerSolver(planner, **options)

    def info(self, count: int = 2) -> dict[str, Any]:
        problem = peer_scene.scene()
        return {name: problem[name].repeat(count, 1, 1, 1)[:, None] for name in ("pixels", "goal")}

    def configure(self, solver: PlannerSolver, *, horizon: int = HORIZON, block: int = 2) -> None:
        config = SimpleNamespace(horizon=horizon, action_block=block)
        solver.configure(action_space=SimpleNamespace(shape=(2, 2)), n_envs=2, config=config)

    def test_it_answers_as_the_policy_expects(self) -> None:
        solver = self.solver()
        self.configure(solver)
        assert (solver.n_envs, solver.horizon, solver.action_dim) == (2, HORIZON, 4)
        first, second = solver(self.info()), solver(self.info(), init_action=None)
        assert first["actions"].shape == (2, HORIZON, 4)
        assert not torch.equal(first["actions"], second["actions"])  # each replanning has a seed of its own
        self.configure(solver)
        assert torch.equal(solver(self.info())["actions"], first["actions"])

    def test_units_of_the_environment(self) -> None:
        plain, other = self.solver(), self.solver(env_units=True)
        actions, answered = plain.solve(self.info())["actions"], other.solve(self.info())["actions"]
        torch.testing.assert_close(answered, actions * 2 + 1)
        warm, other_warm = (
            solver.solve(self.info(), rest[:, 2:])["plan"].actions
            for solver, rest in ((plain, actions), (other, answered))
        )
        torch.testing.assert_close(warm, other_warm)

    def test_the_rest_of_a_plan_is_where_the_search_starts(self) -> None:
        class Still:
            def run(self, objective: Any, start: Any, streams: Any) -> Any:
                return SimpleNamespace(candidates=start.mean, trace=None)

        solver = self.solver()
        solver.planner.search = Still()
        rest = torch.randn(2, 3, 4)
        actions = solver.solve(self.info(), rest)["actions"]
        assert torch.equal(actions[:, :3], rest)
        assert not actions[:, 3:].any()

    def test_a_policy_for_something_else_is_refused(self) -> None:
        with pytest.raises(PlanningError, match="plans with horizon = 3, the planner with 5"):
            self.configure(self.solver(), horizon=3)
        with pytest.raises(PlanningError, match="action_block × action size = 10, the planner with 4"):
            self.configure(self.solver(), block=5)
        with pytest.raises(PlanningError, match="not configured"):
            _ = self.solver().n_envs
        with pytest.raises(PlanningError, match="has no 'goal'; it has pixels"):
            self.solver().solve({"pixels": self.info()["pixels"]})


def test_three_frames_imagine_what_its_main_branch_imagines() -> None:
    recorded = np.load(FIXTURES / "peer-main.npz")
    told = {
        name: torch.from_numpy(recorded[f"lewm/history/{name}"]) for name in ("pixels", "past", "plans", "imagined")
    }
    ours = load_published(FIXTURES / "lewm", action_scaler="identity")
    model = PeerModel(_Published(ours))
    imagined = model.rollout(model.encode(told["pixels"]), told["plans"], past_actions=told["past"])
    torch.testing.assert_close(imagined[..., 0, :], told["imagined"], rtol=0, atol=1e-5)


class _Published(nn.Module):
    """Our Le-WM behind its signatures."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.ours = ours
        self.predictor = SimpleNamespace(num_frames=ours.config.history)

    def encode(self, info: dict[str, Tensor]) -> dict[str, Tensor]:
        pixels = info["pixels"].movedim(-3, -1) * _tensor(peer_model.IMAGENET_STD) + _tensor(peer_model.IMAGENET_MEAN)
        return {"emb": self.ours.embed((pixels * 255).round().to(torch.uint8))}

    def action_encoder(self, actions: Tensor) -> Tensor:
        return actions

    def predict(self, frames: Tensor, actions: Tensor) -> Tensor:
        return self.ours.dynamics[0](frames, actions)


def _tensor(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)
