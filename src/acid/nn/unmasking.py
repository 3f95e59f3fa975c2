"""Masked generation: all tokens start hidden, and those with the highest confidence are revealed first.

A token is F numbers, one from each of F vocabularies: a plain token has F = 1, a quantised vector one number per
dimension. In shapes, V is the sum of the sizes of the vocabularies; the other letters are those of `acid.types`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from acid.errors import ShapeError

Predict = Callable[[Tensor, Tensor], Tensor]
Noise = Callable[[], Tensor]


@dataclass(frozen=True)
class Unmasking:
    """How tokens are revealed.

    cooling: "linear": noise falls linearly from `temperature` in the first step to 0. "squared": as CompACT samples,
    by the square of what is left of `temperature` after a step. A single step is always greedy.
    confidence: the probability of what was chosen, or (CompACT's) its logit.
    """

    steps: int = 8
    temperature: float = 1.0
    schedule: Literal["cosine", "linear"] = "cosine"  # of the share of tokens that stays hidden
    cooling: Literal["linear", "squared"] = "linear"
    confidence: Literal["probability", "logit"] = "probability"

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.temperature < math.inf:
            raise ShapeError(f"unmasking needs at least one step and a temperature of at least 0, got {self}")

    def temperature_at(self, step: int) -> float:
        if self.cooling == "squared":
            return (self.temperature * (1 - (step + 1) / self.steps)) ** 2
        return 0.0 if self.steps == 1 else self.temperature * (1 - step / (self.steps - 1))

    def hidden_after(self, step: int, positions: int) -> int:
        """How many positions are still hidden after this step (the first is 0)."""
        share = 1 - (step + 1) / self.steps
        if self.schedule == "cosine":
            share = math.cos(math.pi / 2 * (step + 1) / self.steps)
        return 0 if step + 1 == self.steps else max(0, min(math.floor(share * positions), positions - 1 - step))


def unmask(
    predict: Predict,
    shape: Sequence[int],
    sizes: Sequence[int],
    how: Unmasking,
    *,
    noise: Noise | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Tokens [*shape, F] of vocabularies of these sizes; `shape` is [..., P].

    predict: tokens [*shape, F] and which of them are hidden [*shape] to logits [*shape, V].
    noise: returns a new draw of standard Gumbel noise [..., P, V + 1]; without it, the choice is greedy.
    """
    tokens = torch.zeros((*shape, len(sizes)), dtype=torch.long, device=device)
    hidden = torch.ones(tuple(shape), dtype=torch.bool, device=device)
    for step in range(how.steps):
        logits = predict(tokens, hidden)
        heat = how.temperature_at(step)
        drawn = heat * noise().to(logits) if noise is not None and heat > 0 else None
        chosen, confidence = choose(logits, sizes, drawn, by_logit=how.confidence == "logit")
        tokens = torch.where(hidden.unsqueeze(-1), chosen, tokens)
        hidden = _least(confidence.masked_fill(~hidden, torch.inf), how.hidden_after(step, shape[-1]))
    return tokens


def choose(
    logits: Tensor, sizes: Sequence[int], noise: Tensor | None, *, by_logit: bool = False
) -> tuple[Tensor, Tensor]:
    """Logits [..., P, V] to tokens [..., P, F] and their confidence [..., P]; noise [..., P, V + 1] perturbs both.

    Confidence is the logarithm of the probability, or the logit alone.
    """
    chosen, confidence = [], logits.new_zeros(())
    disturbance = None if noise is None else noise[..., :-1].split(list(sizes), -1)
    for factor, part in enumerate(logits.split(list(sizes), -1)):
        preferred = part if disturbance is None else part + disturbance[factor]
        best = preferred.argmax(-1, keepdim=True)
        known = part.gather(-1, best)
        confidence = confidence + (known if by_logit else known - part.logsumexp(-1, keepdim=True)).squeeze(-1)
        chosen.append(best)
    return torch.cat(chosen, -1), confidence if noise is None else confidence + noise[..., -1]


def random_mask(rows: int, positions: int, *, full: float = 0.0) -> Tensor:
    """Which tokens are hidden in training, [rows, positions]: a share cos(π u / 2) with u uniform, at least one.

    `full` is the probability that a whole row is hidden, as it is at the start of generation.
    """
    share = (torch.rand(rows) * math.pi / 2).cos()
    share = torch.where(torch.rand(rows) < full, 1.0, share)
    count = (share * positions).ceil().clamp(min=1)
    return torch.rand(rows, positions).argsort(1).argsort(1) < count[:, None]


def gumbel(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, drawn on the CPU."""
    uniform = torch.rand(tuple(shape), generator=generator).clamp(1e-9, 1 - 1e-7)
    return -(-uniform.log()).log()


def _least(confidence: Tensor, count: int) -> Tensor:
    """Booleans [..., P] that mark the `count` positions with the lowest confidence."""
    return confidence.argsort(dim=-1, stable=True).argsort(-1) < count
