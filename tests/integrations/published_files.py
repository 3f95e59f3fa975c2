"""Random weights in published layouts, and a plain reading of the published CDiT."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = dict[str, Tensor]


class Shapes:
    """Random weights by published names."""

    def __init__(self, seed: int) -> None:
        self.state: State = {}
        self.random = torch.Generator().manual_seed(seed)

    def add(self, name: str, *shape: int, std: float = 0.3) -> Tensor:
        self.state[name] = std * torch.randn(shape, generator=self.random)
        return self.state[name]

    def linear(self, name: str, before: int, after: int) -> None:
        self.add(f"{name}.weight", after, before)
        self.add(f"{name}.bias", after)

    def module(self, name: str, module: nn.Module) -> None:
        for part, value in module.state_dict().items():
            self.add(f"{name}.{part}", *value.shape)


def add_cdit(made: Shapes, width: int, depth: int, waves: int, times: tuple[str, ...] = ("time_embedder",)) -> None:
    """What the networks of NWM and of CompACT have in common."""
    third = width // 3
    embedders = {"y_embedder.x_emb": third, "y_embedder.y_emb": third, "y_embedder.angle_emb": width - 2 * third}
    for name, size in (embedders | dict.fromkeys(times, width)).items():
        made.linear(f"{name}.mlp.0", waves, size)
        made.linear(f"{name}.mlp.2", size, size)
    for number in range(depth):
        block = f"blocks.{number}"
        made.linear(f"{block}.attn.qkv", width, 3 * width)
        made.linear(f"{block}.attn.proj", width, width)
        made.module(f"{block}.cttn", nn.MultiheadAttention(width, 1, add_bias_kv=True))
        made.linear(f"{block}.adaLN_modulation.1", width, 11 * width)
        made.linear(f"{block}.mlp.fc1", width, 24)
        made.linear(f"{block}.mlp.fc2", 24, width)
    made.linear("final_layer.adaLN_modulation.1", width, 2 * width)


class CDiT:
    """What the published network computes, from its weights."""

    def __init__(self, state: State, width: int, heads: int) -> None:
        self.state, self.width, self.heads = state, width, heads

    def linear(self, name: str, value: Tensor) -> Tensor:
        return value @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]

    def embed(self, name: str, values: Tensor) -> Tensor:
        """Numbers [M] to vectors."""
        half = self.state[f"{name}.mlp.0.weight"].shape[1] // 2
        rates = torch.tensor([10_000 ** (-i / half) for i in range(half)])
        waves = torch.cat([(values[:, None] * rates).cos(), (values[:, None] * rates).sin()], 1)
        return self.linear(f"{name}.mlp.2", F.silu(self.linear(f"{name}.mlp.0", waves)))

    def embed_action(self, actions: Tensor) -> Tensor:
        names = ("x_emb", "y_emb", "angle_emb")
        return torch.cat([self.embed(f"y_embedder.{name}", actions[:, i]) for i, name in enumerate(names)], 1)

    def __call__(self, hidden: Tensor, seen: Tensor, condition: Tensor) -> Tensor:
        """Tokens [M, P, width] and those of the context, told of a condition [M, width], to the modulated output."""
        told, width = F.silu(condition), self.width
        depth = 1 + max(int(name.split(".")[1]) for name in self.state if name.startswith("blocks."))
        for name in (f"blocks.{number}" for number in range(depth)):
            part = self.linear(f"{name}.adaLN_modulation.1", told)[:, None].split(width, -1)
            query, key, value = (
                piece.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for piece in self.linear(f"{name}.attn.qkv", normed(hidden) * (1 + part[1]) + part[0]).split(width, -1)
            )
            weights = (query @ key.transpose(2, 3) / math.sqrt(width // self.heads)).softmax(-1)
            hidden = hidden + part[2] * self.linear(f"{name}.attn.proj", (weights @ value).transpose(1, 2).flatten(2))
            attention = nn.MultiheadAttention(width, self.heads, add_bias_kv=True, batch_first=True).eval()
            start = f"{name}.cttn."
            attention.load_state_dict({k.removeprefix(start): v for k, v in self.state.items() if k.startswith(start)})
            looked = normed(seen) * (1 + part[4]) + part[3]
            hidden = hidden + part[7] * attention(normed(hidden) * (1 + part[6]) + part[5], looked, looked)[0]
            inner = F.gelu(self.linear(f"{name}.mlp.fc1", normed(hidden) * (1 + part[9]) + part[8]), approximate="tanh")
            hidden = hidden + part[10] * self.linear(f"{name}.mlp.fc2", inner)
        shift, scale = self.linear("final_layer.adaLN_modulation.1", told)[:, None].split(width, -1)
        return normed(hidden) * (1 + scale) + shift


def normed(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()


def save(content: dict[str, Any], folder: Path, name: str) -> Path:
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    torch.save(content, folder / "checkpoints" / name)
    return folder
