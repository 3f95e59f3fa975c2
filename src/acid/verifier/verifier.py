"""The verifier: an inverse dynamics model that tells which action lies between two latents."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from acid.loop import Progress
from acid.nn.prefix_suffix import TransformerSize
from acid.types import ActionScaler
from acid.verifier.fitting import LITE_FIT, FitConfig
from acid.verifier.model import FlowModel
from acid.verifier.transitions import Table, successive


class Verifier(FlowModel):
    """Infers the normalised action of a transition; `scaler` relates it to environment units."""

    kind = "verifier"

    def infer(
        self, latent: Tensor, next_latent: Tensor, *, steps: int | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Latents [..., P, D] and their successors [..., P, D] to normalised actions [..., A].

        `steps` and `noise` (ε, [A] or [..., A]) replace those of the configuration.
        """
        return self.flow.infer(latent, next_latent, steps=steps, noise=noise)

    @classmethod
    def fit(
        cls,
        latents: Table,
        actions: Table,
        episodes: Table,
        *,
        frameskip: int = 1,
        size: TransformerSize | None = None,
        training: FitConfig = LITE_FIT,
        merge: bool = False,
        channels: tuple[int, ...] = (),
        euler_steps: int = 1,
        scaler: ActionScaler | None = None,
        folder: Path | None = None,
        device: torch.device | None = None,
        progress: Progress | None = None,
    ) -> Verifier:
        """A verifier of the transitions inside episodes; its `.report` tells which part of the action they identify.

        Latents [M, P, D] and actions [M, A] in environment units, one row per frame; `episodes` [M] holds the id of
        each row's episode, whose rows are consecutive. Row i is paired with row i + frameskip, so frames recorded more
        often than the model steps can all be used; an action that is NaN marks a row from which no transition starts.
        Arrays and tensors of any precision will do. `progress(step, losses)` replaces the lines that tell how the fit
        goes. Network size, scaler, held-out part, `merge`, `channels` and `euler_steps` are as in `prepare`.
        """
        transitions = successive(latents, actions, episodes, frameskip=frameskip)
        return cls.fit_transitions(
            transitions,
            size=size,
            training=training,
            merge=merge,
            channels=channels,
            euler_steps=euler_steps,
            scaler=scaler,
            folder=folder,
            device=device,
            progress=progress,
        )
