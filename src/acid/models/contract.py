"""What a world model is here: the class that it extends, the batch that it learns from, the value that registers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from acid.errors import MissingMethodError, ShapeError, is_number
from acid.types import ActionScaler


@dataclass(frozen=True)
class Batch:
    """B windows of T steps, or B contexts of T frames with goals."""

    frames: Tensor  # pixels uint8 [B, T+1, S, S, 3], or latents [B, T+1, P, D] of a frozen encoder
    actions: Tensor  # normalised [B, T, A]
    elapsed: Tensor | None = None  # frames from a context's last one to each of its goals [B, G], see `aims`

    def aims(self) -> Aims:
        """What is to be predicted from what: of a window, its last frame.

        With `elapsed`, these are contexts, each followed by its G goals: frames [B, T+G, ...] and the actions [B, G, A]
        that lead from the context's last frame to each goal at once.
        """
        if self.elapsed is None:
            return Aims(self.frames[:, :-1], self.frames[:, -1], self.actions[:, -1], 1)
        goals = self.elapsed.shape[1]
        return Aims(
            self.frames[:, :-goals].repeat_interleave(goals, 0),
            *(part.flatten(0, 1) for part in (self.frames[:, -goals:], self.actions, self.elapsed)),
        )


class Aims(NamedTuple):
    """M frames to predict."""

    context: Tensor  # [M, T, ...]
    target: Tensor  # [M, ...]
    actions: Tensor  # [M, A]
    elapsed: int | Tensor  # frames between them, [M] or the same for all


class LearnedWorldModel(nn.Module):
    """A network to plan with. Its `config` has at least `action_size` (A) and `history` (T frames that it looks at)."""

    fingerprint: str | None = None  # of the checkpoint that it was loaded from

    def __init__(self, config: Any, scaler: ActionScaler) -> None:
        super().__init__()
        check_sizes(config)
        if scaler.size != config.action_size:
            raise ShapeError(f"the model takes actions of size {config.action_size}, the scaler makes {scaler.size}")
        self.config = config
        self.scaler = scaler

    @property
    def observation_size(self) -> int:
        """Pixels along each side of an image."""
        raise MissingMethodError(type(self), "observation_size")

    @property
    def context(self) -> int:
        """Frames of an observation; with more than one, observations are [B, T, S, S, 3]."""
        return 1

    @property
    def columns(self) -> tuple[str, ...]:
        """Of a dataset, that `encode` needs besides pixels; with some, observations are {"pixels": …, name: …}."""
        return ()

    def encode(self, observation: Tensor) -> Tensor:
        """uint8 pixels [B, S, S, 3] to latents [B, P, D]."""
        raise MissingMethodError(type(self), "encode")

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Latents [B, P, D] and normalised actions [B, N, H, A] to imagined latents [B, N, H, P, D]."""
        raise MissingMethodError(type(self), "rollout")

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Let torch compile the layers of a rollout; arguments are those of `torch.compile`.

        Layer by layer, because a whole rollout, in which every layer occurs at every step, takes minutes to compile.
        """
        for network in self.get_submodule("dynamics").modules():
            for layer in getattr(network, "blocks", ()):
                layer.compile(*args, **kwargs)

    def limit_frames(self, count: int) -> None:
        """Encode at most so many frames at once in training; activations are not kept but computed again."""
        raise ShapeError(f"a {type(self).__name__} encodes a whole batch at once: leave out micro_batch")

    def features(self, latents: Tensor) -> Tensor:
        """What a verifier looks at [..., P', D'] of latents [..., P, D]; by default the latents themselves."""
        return latents

    def fake_input(self, batch: int = 2, *, candidates: int = 3, horizon: int = 5) -> tuple[Any, Any, Tensor]:
        """Noise of the right shapes, the same every time: an observation [B, (T,) S, S, 3], a goal [B, S, S, 3] and
        actions [B, N, H, A], on the model's device."""
        device, random = next(self.parameters()).device, torch.Generator().manual_seed(0)
        image = (self.observation_size, self.observation_size, 3)
        frames = torch.randint(256, (batch, self.context + 1, *image), dtype=torch.uint8, generator=random).to(device)
        actions = torch.randn(batch, candidates, horizon, self.scaler.size, generator=random).to(device)
        observation = frames[:, 0] if self.context == 1 else frames[:, :-1]
        return observation, frames[:, -1], actions


def check_sizes(config: Any) -> None:
    """A ShapeError unless the sizes in a configuration, and in those inside it, are whole numbers of at least 0."""
    for entry in fields(config) if is_dataclass(config) else ():
        value = getattr(config, entry.name)
        if is_dataclass(value):
            check_sizes(value)
            continue
        name = f"{type(config).__name__}.{entry.name}"
        if entry.type in (int, "int") and not (is_number(value, whole=True) and value >= 0):
            raise ShapeError(f"{name} must be a whole number of at least 0, got {value!r}")
        if entry.type == "tuple[int, ...]" and not all(is_number(one, whole=True) and one > 0 for one in value):
            raise ShapeError(f"{name} must hold whole numbers of at least 1, got {value!r}")


class FrozenEncoderModel(LearnedWorldModel):
    """A world model whose encoder is not trained with it, so that every frame is encoded once and kept on disk."""

    @property
    def encoder_fingerprint(self) -> str:
        """Changes with anything that changes what `encode` gives, and with nothing else."""
        raise MissingMethodError(type(self), "encoder_fingerprint")

    def fit_encoder(self, frames: Callable[[int], Tensor]) -> None:
        """Fit whatever encoding needs, before anything is encoded; `frames(n)` gives at most n training frames."""


@dataclass(frozen=True)
class Kind:
    """A kind of world model, as its file exports it."""

    presets: Mapping[str, Callable[[int], Any]]  # scale to network configuration, given the action size
    config: type
    model: type[LearnedWorldModel]  # model(config, scaler)
    loss_config: type
    loss: type[nn.Module]  # loss(loss_config, model), then loss(model, batch) to {"loss": ..., more numbers}
    stream: Literal["pixels", "latents"] = "pixels"  # which windows it is trained on; latents need a FrozenEncoderModel
    actions: Literal["recorded", "displacements"] = "recorded"  # the column `action`, or the steps between poses
    whole_batch: bool = False  # its loss has statistics of a batch, so that one cannot be worked through in parts
    is_map: bool = False  # the P tokens of a frame lie in a square, rather than being one vector
    parts: tuple[str, ...] = ("model", "verifier", "policy", "decoder", "readout")  # of a cell, in order of training
