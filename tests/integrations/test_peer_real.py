"""With stable-worldmodel itself: `make test-swm` runs this in an environment of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import peer_scene
import pytest
import torch
from peer_scene import ACTION, ELITES, FLAT, HORIZON, ITERATIONS, KINDS, SAMPLES, SEED
from torch import Tensor

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("stable_worldmodel") is None or importlib.util.find_spec("torchvision") is None,
    reason="needs stable-worldmodel: run `make test-swm`",
)

from acid.integrations.peer_cost import PeerCost  # noqa: E402
from acid.integrations.peer_model import PeerModel  # noqa: E402
from acid.integrations.peer_solver import PlannerSolver  # noqa: E402
from acid.planning import CEM, Planner, cem, goal_cost  # noqa: E402
from acid.types import ActionScaler  # noqa: E402


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def planner_of(network: Any, **options: Any) -> Planner:
    scaler = ActionScaler((0.0,) * ACTION, (1.0,) * ACTION)
    model, search = PeerModel(network, scaler, **options), CEM(SAMPLES, ITERATIONS, ELITES)
    return Planner(model, peer_scene.cost_of(network), search, horizon=HORIZON)


def observations(kind: str) -> tuple[Any, Any]:
    problem = peer_scene.scene()
    if kind in FLAT:
        return problem["pixels"], problem["goal"]
    now = {name: problem[name] for name in ("pixels", "proprio")}
    return now, {"pixels": problem["goal"], "proprio": problem["goal_proprio"]}


def test_the_recorded_files_are_what_it_computes() -> None:
    recorded = np.load(peer_scene.FIXTURES / f"peer-{peer_scene.api()}.npz")
    found = peer_scene.record()
    assert found.keys() == set(recorded)
    for name, values in found.items():
        np.testing.assert_allclose(values, recorded[name], rtol=1e-3, atol=1e-3, err_msg=name)


def test_its_cem_with_our_cost_keeps_the_elites_of_our_planner_with_its_model(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Tensor] = []
    lowest = cem.lowest
    monkeypatch.setattr(
        cem, "lowest", lambda total, count: kept.append(lowest(total, count).index[0]) or lowest(total, count)
    )
    plan = planner_of(peer_scene.peer_network(kind)).plan(*observations(kind), seed=[SEED])
    theirs = peer_scene.solve(peer_scene.peer_network(kind), "CEMSolver")
    assert torch.equal(torch.stack(kept), theirs["elites"])
    torch.testing.assert_close(plan.actions[0], theirs["actions"], rtol=0, atol=1e-4)


def test_without_a_verifier_the_cost_is_its_own(kind: str) -> None:
    network = peer_scene.peer_network(kind)
    if not hasattr(network, "get_cost"):
        pytest.skip("its main branch keeps the cost outside the model")
    parts = PeerModel(network).parts
    cost = goal_cost() if parts is None else peer_scene.Cost([peer_scene.PartDistances(parts)])
    candidates = torch.randn(1, 8, HORIZON, ACTION, generator=torch.Generator().manual_seed(0))
    info = peer_scene.for_each(peer_scene.info_of(peer_scene.scene()), 8)
    ours = PeerCost(network, cost).get_cost(dict(info), candidates)
    theirs = peer_scene.peer_network(kind).get_cost(dict(info), candidates)
    torch.testing.assert_close(ours, theirs)


class Environments:
    """What its policy asks of a set of two environments."""

    num_envs = 2

    def __init__(self) -> None:
        import gymnasium

        self.single_action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2, 2), np.float32)


@pytest.mark.parametrize("ready", [False, True], ids=["pixels", "transformed"])
def test_our_planner_drives_its_policy(ready: bool) -> None:
    from stable_worldmodel.policy import PlanConfig, WorldModelPolicy

    planner = planner_of(peer_scene.peer_network("lewm"), **({"preprocess": None} if ready else {}))
    transform = {name: lambda image: _normalised(image) for name in ("pixels", "goal")} if ready else {}
    policy = WorldModelPolicy(
        PlannerSolver(planner, seed=4),
        PlanConfig(horizon=HORIZON, receding_horizon=2, action_block=2),
        transform=transform,
    )
    policy.set_env(Environments())
    problem = peer_scene.scene()
    info = {name: problem[name].numpy()[None].repeat(2, 0) for name in ("pixels", "goal")}  # [2, T = 1, S, S, 3]
    actions = [policy.get_action(dict(info)) for _ in range(5)]  # two plans: four steps each
    assert all(action.shape == (2, 2) and np.isfinite(action).all() for action in actions)
    plan = PlannerSolver(planner_of(peer_scene.peer_network("lewm")), seed=4).solve(
        {name: torch.from_numpy(value) for name, value in info.items()}
    )
    expected = plan["actions"][:, :2].reshape(2, 4, 2).numpy()
    np.testing.assert_allclose(np.stack(actions[:4], 1), expected, rtol=0, atol=1e-4)


def _normalised(image: Tensor) -> Tensor:
    from acid.integrations.peer_model import imagenet

    return imagenet(torch.as_tensor(image).movedim(-3, -1))


def test_datasets_both_ways(tmp_path: Path) -> None:
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset, HDF5Writer
    from stable_worldmodel.data.formats.lance import LanceWriter

    from acid.data import Episodes, EpisodeWriter, import_episodes

    episodes = [_episode(steps) for steps in (5, 7)]
    with EpisodeWriter(tmp_path / "ours.h5") as writer:
        for episode in episodes:
            writer.write(episode)
    theirs = HDF5Dataset(path=str(tmp_path / "ours.h5"))
    read = theirs.load_episode(1)
    np.testing.assert_array_equal(np.asarray(read["action"]), episodes[1]["action"])
    np.testing.assert_array_equal(np.asarray(read["pixels"]).transpose(0, 2, 3, 1), episodes[1]["pixels"])

    rows = [{name: list(values) for name, values in episode.items()} for episode in episodes]
    with HDF5Writer(tmp_path / "theirs.h5", mode="overwrite") as writer:
        writer.write_episodes(iter(rows))
    ours = Episodes(tmp_path / "theirs.h5").episode(1)
    assert all((ours[name] == values).all() for name, values in episodes[1].items())

    with contextlib.redirect_stdout(io.StringIO()), LanceWriter(tmp_path / "theirs.lance", mode="overwrite") as writer:
        writer.write_episodes(iter(rows))
    found = import_episodes(tmp_path / "theirs.lance", tmp_path / "lance.h5", "lance")
    copied = found.episode(1)
    assert list(found.lengths) == [5, 7]
    np.testing.assert_array_equal(copied["action"], episodes[1]["action"])
    assert np.abs(copied["pixels"].astype(int) - episodes[1]["pixels"]).mean() < 3  # it stores JPEG
    small = import_episodes(tmp_path / "theirs.lance", tmp_path / "small.h5", "lance", size=8)
    assert small.shape("pixels") == (8, 8, 3)


def _episode(steps: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(steps)
    ramp = np.linspace(0, 200, 32, dtype=np.uint8)
    frames = np.broadcast_to(ramp[None, None, :, None], (steps, 32, 32, 3)) + random.integers(50, size=(steps, 1, 1, 1))
    return {"pixels": frames.astype(np.uint8), "action": random.normal(size=(steps, 2)).astype(np.float32)}


def test_the_page_on_it_is_true() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "stable-worldmodel.md"
    blocks = re.findall(r"^```py\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    problem = peer_scene.scene()
    names: dict[str, Any] = {
        "network": peer_scene.peer_network("lewm"),
        "prejepa": peer_scene.peer_network("prejepa"),
        "verifier": peer_scene.LinearVerifier(),
        "pixels": problem["pixels"],
        "goal": problem["goal"],
    }
    module = peer_scene.solver_class("CEMSolver").__module__.split(".")[1]
    for code in blocks:
        exec(code.replace("stable_worldmodel.solver", f"stable_worldmodel.{module}"), names)
    assert len(blocks) == 4
    assert names["plan"].env_actions.shape == (1, 10, 2)
    names["policy"].set_env(Environments())
