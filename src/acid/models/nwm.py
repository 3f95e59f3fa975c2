"""NWM with CompACT: the next frame's 16 tokens, unmasked a few at a time, given four frames and an action.

The network is a conditional diffusion transformer (CDiT) put to masked generation: tokens of the next frame attend to
one another and to the context's tokens; action and elapsed time modulate every layer (AdaLN-zero).

A frame's keys and values do not depend on the action, on what is unmasked or on how old the frame is (its age is added
to them), so they are computed once per imagined frame, not once per unmasking step. In the network of CompACT's authors
(`published` in the configuration) they depend on the action: the context is read anew for every candidate and step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models import compact
from acid.models.cdit import PUBLISHED_TIME, ActionEmbedding, CDiTBlock, CDiTConfig, Memory
from acid.models.compact import CompactConfig, CompactTokenizer
from acid.models.contract import Batch, Kind
from acid.models.video import VideoModel
from acid.nn.embeddings import TimeEmbedding
from acid.nn.fsq import FSQ
from acid.nn.unmasking import Unmasking, gumbel, random_mask, unmask
from acid.types import ActionScaler

LONGEST_TIME = 64  # frames that count as time 1


@dataclass(frozen=True)
class NWMConfig:
    """What the frames are made of and what predicts them.

    factorised: predict each level of a token by itself (one softmax per dimension of the quantised vector, embeddings
    summed), instead of one of all codes with the table of input embeddings, which is then the output's as well.

    published: the network of CompACT's authors instead of ours. What is read of the context is modulated too (11 parts
    of AdaLN instead of 9), one learned key and value lie beside it, every frame of the context has positions of its own
    instead of an age, the output is modulated and has no bias, and actions and times are described by other waves.
    forget: share of each context frame's tokens that a rollout hides, at random and anew for every imagined frame, as
    is done in training; only of the published network.
    """

    action_size: int  # A: numbers per action; 0 in a recipe: as in the data
    tokenizer: CompactConfig
    predictor: CDiTConfig = field(default_factory=CDiTConfig)
    context: int = 4  # frames
    factorised: bool = False
    waves: int = 256  # sines and cosines that describe each number of an action
    unmasking: Unmasking = field(default_factory=Unmasking)
    published: bool = False
    forget: float = 0.0

    def __post_init__(self) -> None:
        if self.published and self.factorised:
            raise ShapeError("the published network predicts whole tokens: factorised=True is not one of its settings")
        if not 0 <= self.forget < 1 or (self.forget and not self.published):
            raise ShapeError(f"forget is a share of the published network's context, from 0 to 1, got {self.forget}")

    @property
    def latent_size(self) -> int:
        """D."""
        return len(self.tokenizer.levels)

    @property
    def history(self) -> int:
        return self.context


def paper(action_size: int) -> NWMConfig:
    """The published sizes: CDiT-B, one embedding for each of 64 000 codes, 8 unmasking steps."""
    return NWMConfig(action_size, compact.paper())


def lite(action_size: int) -> NWMConfig:
    """64-px frames and a predictor of 2 M parameters that one CPU core trains in half an hour."""
    return NWMConfig(
        action_size,
        compact.lite(),
        predictor=CDiTConfig(width=144, depth=4, heads=4, mlp_width=432),
        factorised=True,
        waves=32,
        unmasking=Unmasking(2),
    )


PRESETS = {"paper": paper, "lite": lite}


class TokenEmbedding(nn.Module):
    """Tokens [..., P, F] of F vocabularies to vectors [..., P, width]: the sum of their numbers' embeddings."""

    offsets: Tensor

    def __init__(self, sizes: Sequence[int], width: int, *, std: float) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.table = nn.Embedding(sum(sizes) + 1, width)  # the last one stands for hidden
        nn.init.normal_(self.table.weight, std=std)
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        self.register_buffer("offsets", torch.tensor(starts), persistent=False)

    def forward(self, tokens: Tensor, hidden: Tensor | None = None) -> Tensor:
        vectors = self.table(tokens + self.offsets).sum(-2)
        return vectors if hidden is None else torch.where(hidden.unsqueeze(-1), self.table.weight[-1], vectors)


class TokenDynamics(nn.Module):
    """Logits of the next frame's tokens. Tokens are integers [..., P, F]; V is the sum of the F vocabularies' sizes."""

    blocks: Sequence[CDiTBlock]

    def __init__(self, config: NWMConfig, sizes: Sequence[int], tokens: int) -> None:
        super().__init__()
        width = config.predictor.width
        self.config = config
        self.tokens = tokens
        std = 0.3 if config.factorised else 0.02  # a table that is also the output's must begin small
        self.embed = TokenEmbedding(sizes, width, std=std)
        self.embed_context = TokenEmbedding(sizes, width, std=std) if config.factorised else self.embed
        published = config.published
        self.embed_action = ActionEmbedding(config.action_size, config.waves, width, published=published)
        self.embed_time = ActionEmbedding(1, config.waves, width, published=True) if published else TimeEmbedding(width)
        frames = config.context if published else 1  # each of the context, or all alike; then the next frame
        self.positions = nn.Parameter(std * torch.randn(frames + 1, tokens, width))
        remembered = 0 if published else config.context
        blocks = nn.ModuleList(CDiTBlock(config.predictor, remembered) for _ in range(config.predictor.depth))
        self.blocks = cast("Sequence[CDiTBlock]", blocks)
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) if published else nn.LayerNorm(width)
        self.head = nn.Linear(width, sum(sizes)) if config.factorised else None
        self.bias = None if config.factorised or published else nn.Parameter(torch.zeros(sum(sizes)))
        self.modulation = nn.Linear(width, 2 * width) if published else None  # of the output
        if self.modulation is not None:
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.embed.sizes

    def remember(self, frames: Tensor, hidden: Tensor | None = None) -> list[Memory]:
        """Tokens of frames [M, t, P, F], some perhaps hidden [M, t, P], to what each block keeps of them."""
        embedded = self._embed_context(frames, hidden)
        return [block.cross.remember(embedded) for block in self.blocks]

    def _embed_context(self, frames: Tensor, hidden: Tensor | None) -> Tensor:
        return self.embed_context(frames, hidden) + self.positions[:-1]

    def condition(self, actions: Tensor, elapsed: int | Tensor = 1) -> list[Tensor]:
        """Actions [M, A] and frames elapsed (a number or [M]) to the modulation of each block [M, 1, parts·width], and
        of the output where that is modulated."""
        time = torch.as_tensor(elapsed, device=actions.device).to(actions)
        time = time.unsqueeze(-1) / PUBLISHED_TIME if self.config.published else time / LONGEST_TIME
        activated = F.silu(self.embed_action(actions) + self.embed_time(time)).unsqueeze(1)
        found = [block.modulation(activated) for block in self.blocks]
        return found if self.modulation is None else [*found, self.modulation(activated)]

    def look(self, frames: Tensor, hidden: Tensor | None, modulations: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Tokens of a whole context [M, T, P, F], some perhaps hidden [M, T, P], ready to be attended to."""
        if not self.config.published:
            return self.aged(self.remember(frames, hidden))
        context = self._embed_context(frames, hidden).flatten(1, 2)
        return [block.read(context, part) for block, part in zip(self.blocks, modulations[:-1], strict=True)]

    def aged(self, memories: Sequence[Memory]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of a whole context [M, T, P, width], ready to be attended to."""
        return [block.cross.aged(memory) for block, memory in zip(self.blocks, memories, strict=True)]

    def forward(
        self,
        tokens: Tensor,
        hidden: Tensor,
        modulations: Sequence[Tensor],
        contexts: Sequence[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The next frame's tokens [M, P, F], those that are hidden [M, P], to logits [M, P, V]."""
        x = self.embed(tokens, hidden) + self.positions[-1]
        for block, modulation, context in zip(self.blocks, modulations[: len(self.blocks)], contexts, strict=True):
            x = block(x, modulation, context)
        x = self.norm(x)
        if self.modulation is not None:
            shift, scale = modulations[-1].chunk(2, -1)
            x = torch.addcmul(shift, x, 1 + scale)
        return F.linear(x, self.embed.table.weight[:-1], self.bias) if self.head is None else self.head(x)

    def unroll(self, context: Tensor, actions: Tensor, how: Unmasking, seeds: Sequence[int]) -> Tensor:
        """Context tokens [B, T, P, F] and actions [B, N, H, A] to imagined tokens [B, N, H, P, F].

        Every problem has its own random numbers, and its candidates share them: they then differ by what their actions
        do rather than by luck, and neither the batch nor the order of candidates changes what is imagined.
        """
        problems, candidates, horizon, _ = actions.shape
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        shape = (self.tokens, sum(self.sizes) + 1)
        past: _Context
        if self.config.published:
            past = _RereadContext(self, context, candidates, generators)
        else:
            past = _RememberedContext(self, context, candidates)
        imagined = []
        for step in range(horizon):
            modulations = self.condition(actions[:, :, step].flatten(0, 1))
            contexts = past.contexts(modulations)

            def predict(tokens: Tensor, hidden: Tensor) -> Tensor:
                logits = self(tokens.flatten(0, 1), hidden.flatten(0, 1), modulations, contexts)  # noqa: B023
                return logits.unflatten(0, (problems, candidates))

            imagined.append(
                unmask(
                    predict,
                    (problems, candidates, self.tokens),
                    self.sizes,
                    how,
                    noise=lambda: torch.stack([gumbel(shape, generator) for generator in generators]).unsqueeze(1),
                    device=actions.device,
                )
            )
            if step + 1 < horizon:
                past.add(imagined[-1])
        return torch.stack(imagined, 2)


class _Context(Protocol):
    """The frames that an imagined one follows from."""

    def contexts(self, modulations: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values for each block."""
        ...

    def add(self, tokens: Tensor) -> None:
        """An imagined frame [B, N, P, F], in place of the oldest."""
        ...


class _RememberedContext:
    """Keys and values of every frame, made once; of the context [B, T, P, F], which all N candidates share, once."""

    def __init__(self, dynamics: TokenDynamics, context: Tensor, candidates: int) -> None:
        self.dynamics, self.candidates = dynamics, candidates
        self.memories = [_frames(memory, (len(context), 1)) for memory in dynamics.remember(context)]

    def contexts(self, modulations: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        pairs = zip(self.dynamics.blocks, self.memories, strict=True)
        return [block.cross.aged_frames(memory, self.candidates) for block, memory in pairs]

    def add(self, tokens: Tensor) -> None:
        newest = self.dynamics.remember(tokens.flatten(0, 1).unsqueeze(1))
        new = [_frames(memory, (len(tokens), self.candidates)) for memory in newest]
        self.memories = [[*old[1:], *one] for old, one in zip(self.memories, new, strict=True)]


class _RereadContext:
    """The tokens of the frames, of which some are forgotten whenever they are read: the same for all candidates."""

    def __init__(
        self, dynamics: TokenDynamics, context: Tensor, candidates: int, generators: Sequence[torch.Generator]
    ) -> None:
        self.dynamics, self.generators = dynamics, generators
        self.frames = context.unsqueeze(1).expand(-1, candidates, -1, -1, -1)

    def contexts(self, modulations: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        return self.dynamics.look(self.frames.flatten(0, 1), self._forgotten(), modulations)

    def _forgotten(self) -> Tensor | None:
        _, candidates, *shape, _ = self.frames.shape
        count = math.floor(self.dynamics.config.forget * shape[-1])
        if count == 0:
            return None
        ranks = torch.stack([torch.rand(shape, generator=generator).argsort(-1) for generator in self.generators])
        return (ranks < count).to(self.frames.device).repeat_interleave(candidates, 0)

    def add(self, tokens: Tensor) -> None:
        self.frames = torch.cat([self.frames[:, :, 1:], tokens.unsqueeze(2)], 2)


class NavigationWorldModel(VideoModel):
    """The latent of a frame is its tokenizer's codes [P, D].

    `unmasking` may be replaced at any time; its temperature decides whether the model is stochastic.
    """

    def __init__(self, config: NWMConfig, scaler: ActionScaler, tokenizer: CompactTokenizer | None = None) -> None:
        super().__init__(config, scaler)
        self.tokenizer = (tokenizer or CompactTokenizer(config.tokenizer)).eval().requires_grad_(False)
        self.config = replace(config, tokenizer=self.tokenizer.config)
        self.unmasking = config.unmasking
        quantiser = self.quantiser
        self.dynamics = TokenDynamics(
            self.config, quantiser.levels if config.factorised else (quantiser.size,), self.tokenizer.tokens
        )

    @property
    def observation_size(self) -> int:
        return self.config.tokenizer.image_size

    @property
    def latent_shape(self) -> tuple[int, int]:
        return self.tokenizer.tokens, len(self.quantiser.levels)

    @property
    def encoder_fingerprint(self) -> str:
        return self.tokenizer.fingerprint

    @property
    def quantiser(self) -> FSQ:
        return self.tokenizer.quantiser

    def encode(self, observation: Tensor) -> Tensor:
        """uint8 pixels [B, S, S, 3] to latents [B, P, D], or [B, T, S, S, 3] to [B, T, P, D]."""
        return self.tokenizer.encode(observation)

    def decode(self, latents: Tensor) -> Tensor:
        return self.tokenizer.decode(latents)

    def features(self, latents: Tensor) -> Tensor:
        return self.tokenizer.features(latents)

    def to_tokens(self, latents: Tensor) -> Tensor:
        """Latents [..., P, D] of any precision to the integers that are predicted [..., P, F]."""
        if self.config.factorised:
            return self.quantiser.to_levels(latents)
        return self.quantiser.to_indices(latents).unsqueeze(-1)

    def from_tokens(self, tokens: Tensor) -> Tensor:
        """Integers [..., P, F] to latents [..., P, D]."""
        if self.config.factorised:
            return self.quantiser.from_levels(tokens)
        return self.quantiser.from_indices(tokens[..., 0])

    def imagine(self, context: Tensor, actions: Tensor, seeds: Sequence[int]) -> Tensor:
        return self.from_tokens(self.dynamics.unroll(self.to_tokens(context), actions, self.unmasking, seeds))


@dataclass(frozen=True)
class NWMLossConfig:
    history_mask: float = 0.3  # of a window's context tokens at most this share is hidden, uniformly drawn
    full_mask: float = 0.3  # probability that all tokens of the next frame are hidden, as when unmasking begins


class NWMLoss(nn.Module):
    """Cross-entropy of the next frame's hidden tokens, given its other tokens, the context and the action."""

    def __init__(self, config: NWMLossConfig, model: NavigationWorldModel) -> None:
        super().__init__()
        self.config = config

    def forward(self, model: NavigationWorldModel, batch: Batch) -> dict[str, Tensor]:
        """Of windows of latents, the last frame of which is to be predicted, or of contexts with goals.

        "loss" is what to minimise, in nats a token; "accuracy" is the share of hidden tokens that are right.
        """
        dynamics, aims = model.dynamics, batch.aims()
        context, target = model.to_tokens(aims.context), model.to_tokens(aims.target)
        rows, places = target.shape[:2]
        forgotten = torch.rand(context.shape[:3]) < self.config.history_mask * torch.rand(rows, 1, 1)
        hidden = random_mask(rows, places, full=self.config.full_mask).to(target.device)
        modulations = dynamics.condition(aims.actions, aims.elapsed)
        contexts = dynamics.look(context, forgotten.to(target.device), modulations)
        logits = dynamics(target, hidden, modulations, contexts)
        parts = logits[hidden].float().split(list(dynamics.sizes), -1)
        wanted = target[hidden].unbind(-1)
        loss = torch.stack([F.cross_entropy(part, right) for part, right in zip(parts, wanted, strict=True)]).sum()
        right = torch.stack([part.argmax(-1) == want for part, want in zip(parts, wanted, strict=True)]).all(0)
        return {"loss": loss, "accuracy": right.float().mean()}


KIND = Kind(
    PRESETS,
    NWMConfig,
    NavigationWorldModel,
    NWMLossConfig,
    NWMLoss,
    stream="latents",
    actions="displacements",
    parts=("tokenizer", "model", "verifier", "policy"),
)


def _frames(memory: Memory, rows: tuple[int, int]) -> list[Memory]:
    """One [*rows, P, width] for each frame of a memory [M, t, P, width]."""
    parts = (part.unflatten(0, rows).unbind(2) for part in memory)
    return [Memory(*frame) for frame in zip(*parts, strict=True)]
