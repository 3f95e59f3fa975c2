"""What stable-worldmodel computes with our cost in its solvers, recorded, so that tests can compare without it.

    python tests/integrations/peer_scene.py [--out FOLDER]

writes `peer-release.npz` if the installed stable-worldmodel has the API of release 0.1.1 (`CEMSolver(model=...)`), or
`peer-main.npz` if it has that of the main branch (`CEMSolver(cost=...)`). `make test-swm` sets up its environment.
The files beside this one are from 0.1.1 and from the main branch of August 2026, with torch 2.15.0 and transformers 5.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acid.integrations.peer_cost import AcidObjective, PeerCost
from acid.integrations.peer_model import PeerModel, imagenet
from acid.integrations.published import load_published
from acid.integrations.stable_worldmodel import to_peer_state
from acid.planning import ActionConsistency, Adaptive, Cost, PartDistances, acid_cost

FIXTURES = Path(__file__).parent / "fixtures"
APIS = ("release", "main")
FLAT = ("lewm", "pldm")
KINDS = (*FLAT, "prejepa")
SOLVERS = ("CEMSolver", "ICEMSolver", "MPPISolver")

SEED, LAMBDA = 7, 0.3
SAMPLES, ITERATIONS, ELITES = 24, 4, 6
HORIZON, ACTION, SIDE = 5, 4, 16
PROPRIO, TOKENS = 3, 4
SPLIT = {"predicted_pixels_emb", "predicted_proprio_emb", "pixels_goal_emb", "proprio_goal_emb"}
SIZES = {"pixels": 12, "proprio": 5, "action": 6}  # of a PreJEPA's token


class LinearVerifier:
    """An inverse dynamics model without training: a fixed linear map of the difference of two latents."""

    def infer(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        change = (next_latent - latent).mean(-2)
        weights = torch.linspace(-1, 1, change.shape[-1] * ACTION, dtype=change.dtype).reshape(-1, ACTION)
        return change @ weights.cos()


def scene() -> dict[str, Tensor]:
    """One start and one goal: pixels uint8 [1, S, S, 3] and the numbers of a robot's joints [1, 3]."""
    generator = torch.Generator().manual_seed(3)
    pixels, goal = torch.randint(256, (2, 1, SIDE, SIDE, 3), generator=generator, dtype=torch.uint8)
    proprio, goal_proprio = torch.randn(2, 1, PROPRIO, generator=generator)
    return {"pixels": pixels, "goal": goal, "proprio": proprio, "goal_proprio": goal_proprio}


def cost_of(model: nn.Module | None = None) -> Cost:
    """ACID's cost; that of a PreJEPA measures the distance source by source."""
    parts = None if model is None else PeerModel(model).parts
    if parts is None:
        return acid_cost(LinearVerifier(), LAMBDA)
    return Cost([PartDistances(parts), ActionConsistency(LinearVerifier(), Adaptive(LAMBDA))])


# What follows needs stable-worldmodel.


def api() -> str:
    return "main" if "cost" in inspect.signature(solver_class("CEMSolver")).parameters else "release"


def solver_class(name: str) -> Any:
    """A solver of the installed version, whatever its module is called there."""
    try:
        module = importlib.import_module("stable_worldmodel.planning")
        return getattr(module, name)
    except (ImportError, AttributeError):
        return getattr(importlib.import_module("stable_worldmodel.solver"), name)


def peer_network(kind: str) -> Any:
    """Its LeWM or PLDM with the weights of the fixture of that name, or a PreJEPA with random ones."""
    import transformers

    if kind == "prejepa":
        return _prejepa()
    ours = load_published(FIXTURES / kind, action_scaler="identity")
    classes = importlib.import_module(f"stable_worldmodel.wm.{kind}.{kind}")
    module = importlib.import_module(f"stable_worldmodel.wm.{kind}.module")
    config, vit, causal = ours.config, ours.config.encoder, ours.config.predictor
    encoder = _vit(vit.width, vit.depth, vit.heads, vit.mlp_width)
    predictor = module.Predictor(
        num_frames=causal.frames,
        depth=causal.depth,
        heads=causal.heads,
        dim_head=causal.head_width,
        mlp_dim=causal.mlp_width,
        input_dim=config.latent_size,
        hidden_dim=causal.width,
        dropout=causal.dropout,
    )
    embedder = module.Embedder(config.action_size, config.action_width, causal.width)
    first, last = (
        module.MLP(size, config.projector_width, config.latent_size, norm_fn=nn.BatchNorm1d)
        for size in (vit.width, causal.width)
    )
    network = getattr(classes, {"lewm": "LeWM", "pldm": "PLDM"}[kind])(encoder, predictor, embedder, first, last)
    major = 4 if transformers.__version__.startswith("4.") else 5
    network.load_state_dict(to_peer_state(ours, transformers=major))
    return network.eval().requires_grad_(False)


def _vit(width: int, depth: int, heads: int, mlp: int) -> Any:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=mlp,
        image_size=SIDE,
        patch_size=SIDE // 2,
    )
    return transformers.ViTModel(config, add_pooling_layer=False)


def _prejepa() -> Any:
    module = importlib.import_module("stable_worldmodel.wm.prejepa.module")
    torch.manual_seed(5)
    encoders = {
        "action": module.Embedder(in_chans=ACTION, emb_dim=SIZES["action"]),  # before the proprio, on purpose
        "proprio": module.Embedder(in_chans=PROPRIO, emb_dim=SIZES["proprio"]),
    }
    predictor = module.CausalPredictor(
        num_patches=TOKENS, num_frames=3, dim=sum(SIZES.values()), depth=2, heads=2, mlp_dim=24, dim_head=8
    )
    network = importlib.import_module("stable_worldmodel.wm.prejepa.prejepa").PreJEPA(
        _vit(SIZES["pixels"], 1, 2, 16), predictor, nn.ModuleDict(encoders), history_size=3
    )
    return network.eval().requires_grad_(False)


def info_of(problem: dict[str, Tensor]) -> dict[str, Tensor]:
    """What its policy gives a solver for one environment: [1, T = 1, ...], images prepared."""
    images = {name: imagenet(problem[name])[:, None] for name in ("pixels", "goal")}
    numbers = {name: problem[name][:, None] for name in ("proprio", "goal_proprio")}
    index = {name: torch.zeros(1, 1, dtype=torch.long) for name in ("id", "step_idx")}
    return images | numbers | index | {"action": torch.zeros(1, 1, ACTION)}


class Recording(PeerCost):
    """Keeps what a solver asked for and was told."""

    def __init__(self, model: nn.Module, cost: Cost) -> None:
        super().__init__(model, cost)
        self.candidates: list[Tensor] = []
        self.costs: list[Tensor] = []
        self.info: dict[str, Any] = {}

    def criterion(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        costs = super().criterion(info_dict, action_candidates)
        self.candidates.append(action_candidates[0].clone())
        self.costs.append(costs[0].clone())
        self.info = dict(info_dict)
        return costs


def solve(network: Any, name: str) -> dict[str, Tensor]:
    """One of its solvers with our cost: every candidate and cost, the elites of each iteration, the plan."""
    import gymnasium

    cost = Recording(network, cost_of(network))
    elites: list[Tensor] = []

    class Elites:
        """What its solvers call back in each iteration."""

        output_key, history = "elites", ()

        def __getattr__(self, _: str) -> Any:
            return lambda: None

        def __call__(self, *, topk_inds: Tensor, **_: Any) -> None:
            elites.append(topk_inds[0].clone())

    options: dict[str, Any] = {"num_samples": SAMPLES, "n_steps": ITERATIONS, "topk": ELITES, "seed": SEED}
    if "callbacks" in inspect.signature(solver_class(name)).parameters:
        options["callbacks"] = [Elites()]
    solver = solver_class(name)(cost, **options)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (1, ACTION))
    solver.configure(action_space=space, n_envs=1, config=SimpleNamespace(horizon=HORIZON, action_block=1))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its time
        actions = solver.solve(info_of(scene()))["actions"]
    found = {
        "candidates": torch.stack(cost.candidates),
        "costs": torch.stack(cost.costs),
        "actions": actions[0],
        **({"elites": torch.stack(elites)} if elites else {}),
    }
    if name == "CEMSolver":  # once is enough
        names = {"predicted_emb", "goal_emb"} if network_is_flat(network) else SPLIT
        found |= {key: cost.info[key] for key in names}
    return found


def network_is_flat(network: Any) -> bool:
    return not getattr(network, "extra_encoders", None)


def tape(network: Any) -> dict[str, Tensor]:
    """What its encoders and predictor were given and gave while it rolled out three plans by itself."""
    calls: list[tuple[Tensor, Tensor]] = []
    predict, flat = network.predict, network_is_flat(network)

    def recorded(*given: Tensor) -> Tensor:
        result = predict(*given)
        calls.append((given[0].clone(), result.clone()))
        return result

    plans = torch.randn(1, 3, HORIZON, ACTION, generator=torch.Generator().manual_seed(1))
    network.predict = recorded
    rolled = network.rollout(for_each(info_of(scene()), 3), plans)
    encoder = network.action_encoder if flat else network.extra_encoders["action"]
    key = "predicted_emb" if flat or "predicted_emb" in rolled else "predicted_embedding"
    result = {"plans": plans, "embedded": encoder(plans[0]), "imagined": rolled[key]}
    for name in ("emb",) if flat else ("pixels_emb", "proprio_emb"):
        result[name] = rolled[name][:, 0]
    for step, (given, out) in enumerate(calls):
        result |= {f"given{step}": given, f"out{step}": out}
    return result


def history(network: Any) -> dict[str, Tensor]:
    """Main branch only: what it imagines after three frames and the two actions between them."""
    generator = torch.Generator().manual_seed(2)
    pixels = torch.randint(256, (1, 3, SIDE, SIDE, 3), generator=generator, dtype=torch.uint8)
    past = torch.randn(1, 2, ACTION, generator=generator)
    plans = torch.randn(1, 3, HORIZON, ACTION, generator=generator)
    rolled = network.rollout(for_each({"pixels": imagenet(pixels), "action_history": past}, 3), plans)
    return {"pixels": pixels, "past": past, "plans": plans, "imagined": rolled["predicted_emb"][:, :, 3:]}


def for_each(info: dict[str, Tensor], candidates: int) -> dict[str, Tensor]:
    """Values [B, ...] repeated for each candidate, [B, S, ...], as its solvers do it."""
    return {name: value.unsqueeze(1).expand(-1, candidates, *value.shape[1:]) for name, value in info.items()}


def judged(kind: str, candidates: Tensor) -> Tensor:
    """Main branch only: what its own evaluator says with our objective about candidates [S, T, A]."""
    planning, network = importlib.import_module("stable_worldmodel.planning"), peer_network(kind)
    sources = () if network_is_flat(network) else PeerModel(network).sources
    evaluator = planning.ShootingCostEvaluator(network, AcidObjective(cost_of(network), sources))
    return evaluator.get_cost(for_each(info_of(scene()), len(candidates)), candidates[None])[0]


def record() -> dict[str, np.ndarray]:
    """Everything by kind/solver/name."""
    found: dict[str, Tensor] = {}
    for kind in KINDS:
        found |= {f"{kind}/tape/{key}": value for key, value in tape(peer_network(kind)).items()}
        for name in SOLVERS:  # each with a network of its own: a PreJEPA remembers what it encoded
            found |= {f"{kind}/{name}/{key}": value for key, value in solve(peer_network(kind), name).items()}
        if api() == "main":
            found[f"{kind}/judged"] = judged(kind, found[f"{kind}/CEMSolver/candidates"][0])
    if api() == "main":
        found |= {f"lewm/history/{key}": value for key, value in history(peer_network("lewm")).items()}
    return {key: value.detach().numpy() for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="record what stable-worldmodel's solvers do with our cost")
    parser.add_argument("--out", type=Path, default=FIXTURES)
    torch.set_num_threads(1)
    target = parser.parse_args().out / f"peer-{api()}.npz"
    np.savez_compressed(target, **record())
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
