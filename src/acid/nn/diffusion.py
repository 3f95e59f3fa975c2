"""Denoising diffusion: a value drowns in Gaussian noise in 1 000 small steps, and a network finds the way back.

As in the improved DDPM with a linear schedule: the network predicts the noise, and how uncertain each step back is,
between the least and the most that it can be. A way back may skip steps. Values are [..., P, D] in any units near 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from acid.errors import ShapeError

STEPS = 1000
FIRST_BETA, LAST_BETA = 1e-4, 0.02  # variance of the noise that a step adds
_HALF_BIN = 1 / 255  # half of the width of a bin, where values are taken to be 256 shades from −1 to 1
_EDGE = 0.999  # beyond which a value belongs to the outermost shade
_TINY = 1e-12


class Diffusion:
    """A way there and back of so many steps, evenly spread over the 1 000.

    Step 0 is the least noisy one; `levels[k]` is what the network is told of step k. A step is one number for all
    values, or a tensor [M] for values [M, P, D].
    """

    def __init__(self, steps: int = STEPS) -> None:
        if not 2 <= steps <= STEPS:
            raise ShapeError(f"noise is taken away in 2 to {STEPS} steps, got {steps}")
        self.levels = [round(step * (STEPS - 1) / (steps - 1)) for step in range(steps)]
        betas = torch.linspace(FIRST_BETA, LAST_BETA, STEPS, dtype=torch.float64, device="cpu")
        kept = (1 - betas).cumprod(0)[self.levels]  # of the signal's variance
        before = torch.cat([kept.new_ones(1), kept[:-1]])
        beta = 1 - kept / before
        least = beta * (1 - before) / (1 - kept)
        least[0] = least[1]  # nothing is uncertain in the last step back, whose logarithm would not be finite
        self._signal, self._noise = kept.sqrt().tolist(), (1 - kept).sqrt().tolist()
        self._least, self._most = least.log().tolist(), beta.log().tolist()
        self._of_clean = (beta * before.sqrt() / (1 - kept)).tolist()
        self._of_noised = ((1 - before) * (1 - beta).sqrt() / (1 - kept)).tolist()

    def noised(self, clean: Tensor, step: int | Tensor, noise: Tensor) -> Tensor:
        return self._at(self._signal, step) * clean + self._at(self._noise, step) * noise

    def back(self, output: Tensor, noised: Tensor, step: int | Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of the step before, given what the network says [..., P, 2·D]."""
        noise, where = output.chunk(2, -1)
        clean = (noised - self._at(self._noise, step) * noise) / self._at(self._signal, step)
        least, most = self._at(self._least, step), self._at(self._most, step)
        return self._mean(clean, noised, step), least + (where + 1) / 2 * (most - least)

    def losses(self, output: Tensor, clean: Tensor, noise: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Of what the network says [M, P, 2·D]: the squared error of the noise, and the variational bound in bits.

        Both are means over the numbers of each value, [M]. The bound teaches the variance and leaves the noise alone.
        """
        said, where = output.chunk(2, -1)
        noised = self.noised(clean, step, noise)
        mean, log_variance = self.back(torch.cat([said.detach(), where], -1), noised, step)
        true, least = self._mean(clean, noised, step), self._at(self._least, step)
        apart = (true - mean).square()
        divergence = 0.5 * (log_variance - least - 1 + (least - log_variance).exp() + apart * (-log_variance).exp())
        first = -_log_likelihood(clean, mean, (0.5 * log_variance).exp())
        bound = torch.where((step == 0).view(-1, 1, 1), first, divergence) / math.log(2)
        return (said - noise).square().mean((1, 2)), bound.mean((1, 2))

    def sample(self, predict: Callable[[Tensor, int], Tensor], draw: Callable[[], Tensor]) -> Tensor:
        """All the way back from pure noise. predict: noised values and a level to what the network says.

        draw: a new draw of standard noise, which values are that `predict` takes.
        """
        x = draw()
        for step in reversed(range(len(self.levels))):
            x, log_variance = self.back(predict(x, self.levels[step]).float(), x, step)
            if step:
                x = x + (0.5 * log_variance).exp() * draw()
        return x

    def _mean(self, clean: Tensor, noised: Tensor, step: int | Tensor) -> Tensor:
        return self._at(self._of_clean, step) * clean + self._at(self._of_noised, step) * noised

    @staticmethod
    def _at(table: Sequence[float], step: int | Tensor) -> Tensor:
        """The entry of a step, or those of steps [M] as [M, 1, 1]."""
        if isinstance(step, Tensor):
            return torch.tensor(table, device=step.device)[step].view(-1, 1, 1)
        return torch.tensor(table[step])


def _log_likelihood(values: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Of values as one of 256 shades from −1 to 1, under Gaussians."""
    above, below = (torch.special.ndtr((values - mean + side) / deviation) for side in (_HALF_BIN, -_HALF_BIN))
    inside = torch.where(values < -_EDGE, above, torch.where(values > _EDGE, 1 - below, above - below))
    return inside.clamp(min=_TINY).log()
