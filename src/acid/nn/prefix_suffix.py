"""A transformer over a prefix that sees only itself and a suffix that sees everything.

Because no prefix token looks at the suffix, the prefix is read once (`remember`) and any number of suffixes are then
answered from its keys and values (`answer`). Both halves use the same weights; the attention mask of the joint
sequence never has to be built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acid.errors import ShapeError, is_number
from acid.nn.attention import FEW, attend_few


@dataclass(frozen=True)
class TransformerSize:
    """The size of a transformer."""

    width: int = 192
    depth: int = 4
    heads: int = 3
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        if not all(is_number(size, whole=True) and size >= 1 for size in astuple(self)):
            raise ShapeError(f"every field of a transformer size must be a whole number of at least 1, got {self}")
        if self.width % self.heads:
            raise ShapeError(f"transformer width {self.width} must be a multiple of its {self.heads} heads")


class KeyValue(NamedTuple):
    """What one layer remembers of the prefix, both [B, heads, T, width/heads]."""

    key: Tensor
    value: Tensor


Memory = list[KeyValue]  # one per layer


class Block(nn.Module):
    """One pre-norm layer: attention, then MLP, both residual.

    Linear maps have no bias: the shift of the norm before them does the same job, and in a network this small the extra
    pass over memory takes noticeable time.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        width, hidden = size.width, size.width * size.mlp_ratio
        self.heads = size.heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden, bias=False), nn.GELU(), nn.Linear(hidden, width, bias=False))

    def project(self, tokens: Tensor) -> tuple[Tensor, KeyValue]:
        """Tokens [B, T, W] to their queries and keys and values, each [B, heads, T, W/heads]."""
        query, key, value = map(self._split_heads, self.qkv(self.attention_norm(tokens)).chunk(3, dim=-1))
        return query, KeyValue(key, value)

    def project_memory(self, tokens: Tensor) -> KeyValue:
        """Keys and values only, for tokens whose output is not needed."""
        weight = self.qkv.weight[tokens.shape[-1] :]
        key, value = F.linear(self.attention_norm(tokens), weight).chunk(2, dim=-1)
        return KeyValue(self._split_heads(key), self._split_heads(value))

    def finish(self, tokens: Tensor, query: Tensor, *seen: KeyValue) -> Tensor:
        """Tokens [B, T, W] after attention and MLP."""
        tokens = tokens + self.attention_out(_attend(query, seen).transpose(1, 2).flatten(2))
        return tokens + self.mlp(self.mlp_norm(tokens))

    def _split_heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class PrefixSuffixTransformer(nn.Module):
    """A stack of blocks whose prefix attends to itself and whose suffix attends to prefix and suffix."""

    blocks: Iterable[Block]

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.size = size
        self.blocks = cast("Iterable[Block]", nn.ModuleList(Block(size) for _ in range(size.depth)))
        self.norm = nn.LayerNorm(size.width)
        self.apply(_initialise)

    def remember(self, prefix: Tensor) -> Memory:
        """Prefix tokens [B, T, W] to the keys and values of every layer.

        The prefix output of the last layer is not needed and not computed.
        """
        *inner, last = self.blocks
        memory = []
        for block in inner:
            query, seen = block.project(prefix)
            memory.append(seen)
            prefix = block.finish(prefix, query, seen)
        return [*memory, last.project_memory(prefix)]

    def answer(self, suffix: Tensor, memory: Memory) -> Tensor:
        """Suffix tokens [B, S, W] to outputs [B, S, W].

        A suffix shared by all rows may be passed as [1, S, W]; it is expanded only after the first layer's projections,
        where rows begin to differ.
        """
        for block, seen in zip(self.blocks, memory, strict=True):
            query, own = block.project(suffix)
            suffix = block.finish(suffix, query, seen, own)
        return self.norm(suffix)

    def forward(self, prefix: Tensor, suffix: Tensor) -> Tensor:
        """Prefix [B, T, W] and suffix [B, S, W] to the suffix's outputs [B, S, W]."""
        return self.answer(suffix, self.remember(prefix))


def _attend(query: Tensor, seen: Sequence[KeyValue]) -> Tensor:
    """Queries [B, heads, T, W/heads] over keys and values; any of them may be one row [1, ...] shared by all B."""
    if query.device.type == "cpu" and sum(part.key.shape[2] for part in seen) <= FEW:
        keys, values = ([one for part in parts for one in part.split(1, dim=2)] for parts in zip(*seen, strict=True))
        return attend_few(query, keys, values)
    rows = max(part.key.shape[0] for part in seen)
    keys, values = (
        torch.cat([part.expand(rows, -1, -1, -1) for part in parts], dim=2) for parts in zip(*seen, strict=True)
    )
    return F.scaled_dot_product_attention(query.expand(rows, -1, -1, -1), keys, values)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
