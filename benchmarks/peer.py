"""stable-worldmodel's Le-WM and CEM solver on the weights of a model of ours, for comparison.

Installing all of stable-worldmodel brings simulators, video and dataset libraries. Its solver and its Le-WM need few
of them, so for a comparison this is enough:

    pip install --no-deps stable-worldmodel==0.1.1
    pip install einops gymnasium loguru transformers
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid.integrations.stable_worldmodel import to_peer_state
from acid.models import JepaWorldModel

PACKAGE = "stable_worldmodel"


def installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


@dataclass
class Peer:
    """Plans from one image to another (both uint8 [S, S, 3]) with stable-worldmodel's own code."""

    model: Any  # its LeWM
    preprocess: Callable[[Tensor], Tensor]  # uint8 [S, S, 3] to what its encoder takes [3, S, S]
    block: int  # environment steps per model action

    @classmethod
    def like(cls, model: JepaWorldModel) -> Peer:
        """The same network with the same weights, built from its classes."""

        def preprocess(image: Tensor) -> Tensor:
            return (image.permute(2, 0, 1) - model.pixel_mean) / model.pixel_std

        return cls(_le_wm(model), preprocess, model.scaler.frameskip)

    def costs(self, image: Tensor, goal: Tensor, candidates: Tensor) -> Tensor:
        """What it makes of candidates [N, H, A]: costs [N]."""
        inputs = {
            name: value.unsqueeze(1).expand(-1, len(candidates), *value.shape[1:])
            for name, value in self._inputs(image, goal, candidates.shape[-1]).items()
        }
        with torch.inference_mode():
            return self.model.get_cost(inputs, candidates[None])[0]

    def solve(
        self, image: Tensor, goal: Tensor, *, samples: int, elites: int, iterations: int, shape: tuple[int, int]
    ) -> None:
        """Run its CEM over actions of `shape` (H, A)."""
        import gymnasium

        horizon, size = shape
        solver = _submodule("solver").CEMSolver(self.model, num_samples=samples, topk=elites, n_steps=iterations)
        space = gymnasium.spaces.Box(-np.inf, np.inf, (1, size // self.block))
        solver.configure(action_space=space, n_envs=1, config=SimpleNamespace(horizon=horizon, action_block=self.block))
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its time
            solver.solve(self._inputs(image, goal, size))

    def _inputs(self, image: Tensor, goal: Tensor, size: int) -> dict[str, Tensor]:
        return {
            "pixels": self.preprocess(image)[None, None],
            "goal": self.preprocess(goal)[None, None],
            "action": torch.zeros(1, 1, size),
        }


def _le_wm(model: JepaWorldModel) -> Any:
    import transformers

    lewm, parts = _submodule("wm.lewm.lewm"), _submodule("wm.lewm.module")
    config, vit, causal = model.config, model.config.encoder, model.config.predictor
    encoder = transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=vit.width,
            num_hidden_layers=vit.depth,
            num_attention_heads=vit.heads,
            intermediate_size=vit.mlp_width,
            image_size=vit.image_size,
            patch_size=vit.patch,
        ),
        add_pooling_layer=False,
    )
    predictor = parts.Predictor(
        num_frames=causal.frames,
        depth=causal.depth,
        heads=causal.heads,
        dim_head=causal.head_width,
        mlp_dim=causal.mlp_width,
        input_dim=config.latent_size,
        hidden_dim=causal.width,
        dropout=causal.dropout,
    )
    embedder = parts.Embedder(config.action_size, config.action_width, causal.width)

    def projector() -> Any:
        return parts.MLP(causal.width, config.projector_width, config.latent_size, norm_fn=torch.nn.BatchNorm1d)

    peer = lewm.LeWM(encoder, predictor, embedder, projector(), projector())
    major = 4 if transformers.__version__.startswith("4.") else 5
    peer.load_state_dict(to_peer_state(model, transformers=major))
    return peer.eval().requires_grad_(False)


def _submodule(name: str) -> Any:
    """A part of stable-worldmodel, without the front pages above it: they import every dataset format and simulator."""
    for package in (PACKAGE, f"{PACKAGE}.wm"):
        if package not in sys.modules:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            assert spec.submodule_search_locations is not None
            module = sys.modules[package] = ModuleType(package)
            module.__path__ = list(spec.submodule_search_locations)
    return importlib.import_module(f"{PACKAGE}.{name}")
