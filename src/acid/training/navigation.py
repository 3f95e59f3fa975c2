"""Train NWM on the tokens of a CompACT tokenizer, and its verifier on what the tokens look like.

Data are episodes with the columns `pixels` and `pose` (see `acid.data.recon`). Every frame is tokenised once, as it is
and mirrored left to right, and kept on disk beside the dataset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid import models
from acid.data import Episodes, Windows, cached_latents, encode_episodes, split
from acid.data.poses import displacements
from acid.data.recon import open_recon
from acid.data.windows import Shuffle
from acid.errors import AcidError, look_up
from acid.loop import LoopConfig, Progress, train
from acid.models import NavigationWorldModel, NWMLossConfig
from acid.models.compact import CompactTokenizer, Perceptual
from acid.training.tokenizer import perceived, psnr
from acid.types import ActionScaler
from acid.verifier import LITE, LITE_FIT, PAPER, PAPER_FIT, FitConfig, TransformerSize, Verifier

# NWM's normalisation of displacements (m, m, rad), which does not depend on the data.
SCALER = ActionScaler(mean=(0.3125, 0.0, 0.0), std=(0.9375, 1.0, 1.0))
KINDS = ("nwm",)  # the world models that are trained here
MIRROR = (1.0, -1.0, -1.0)  # what a mirror does to a displacement, and to a normalised action
HORIZON = 8  # steps that validation imagines
VALIDATION_WINDOWS = 128
EULER_STEPS = 10


@dataclass(frozen=True)
class NavigationRecipe:
    """How the world model is trained, apart from data and tokenizer."""

    kind: str = "nwm"
    preset: str = "lite"
    objective: NWMLossConfig = field(default_factory=NWMLossConfig)
    held_out: float = 0.1  # share of the episodes kept for evaluation
    half_precision: bool = False  # of the stored weights
    loop: LoopConfig = field(default_factory=LoopConfig)


RECIPES = {
    "paper": NavigationRecipe(
        preset="paper", loop=LoopConfig(steps=200_000, batch_size=256, learning_rate=1e-4, weight_decay=1e-2)
    ),
    "lite": NavigationRecipe(
        held_out=0.2,
        half_precision=True,
        loop=LoopConfig(steps=8_000, batch_size=64, learning_rate=1e-3, weight_decay=1e-2, warmup=0.03),
    ),
}


def recipe(name: str, *, steps: int | None = None, seed: int = 0) -> NavigationRecipe:
    """A recipe by name, with the two settings that are most often changed."""
    chosen = look_up(RECIPES, name, "recipe")
    return replace(chosen, loop=replace(chosen.loop, steps=steps or chosen.loop.steps, seed=seed))


def open_frames(path: Path, size: int) -> Episodes:
    """Frames with poses: what `acid collect navigation` wrote, or a folder of RECON's files, decoded to `size` px."""
    return open_recon(path, size=size) if path.is_dir() else Episodes(path, require=("pixels", "pose"))


@dataclass(frozen=True)
class TokenDataset:
    """All frames of a dataset as a tokenizer sees them, and the steps between them."""

    episodes: Episodes
    latents: Tensor  # float16 [rows, 2, P, D]: as it is, mirrored
    steps: Tensor  # float32 [rows, 3]: (m, m, rad) to the next frame; NaN in the last row of an episode

    def windows(self, ids: np.ndarray, frames: int) -> Windows:
        return Windows(self.episodes, ids, frames)

    def look(self, rows: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
        """Windows of rows [B, T+1] to latents [B, T+1, P, D] and normalised actions [B, T, 3], mirrored where [B]."""
        latents = self.latents[rows, mirrored.long()[:, None]].float()
        sign = torch.where(mirrored[:, None], self.steps.new_tensor(MIRROR), 1.0)[:, None]
        return latents, SCALER.normalise(self.steps[rows[:, :-1]] * sign)


def tokenise(
    tokenizer: CompactTokenizer, episodes: Episodes, *, progress: Callable[[int, int], None] | None = None
) -> TokenDataset:
    """Every frame through the tokenizer, once; kept beside the dataset in a file named after the tokenizer."""

    def both(pixels: Tensor) -> Tensor:
        return torch.cat([tokenizer.encode(pixels), tokenizer.encode(pixels.flip(2))], 1)

    data = Path(episodes.path)
    fingerprint = f"{tokenizer.fingerprint} mirrored {len(episodes)} {episodes.rows} {episodes.attributes}"
    latents = cached_latents(
        data.with_name(f"{data.stem}.{tokenizer.fingerprint}.tokens.safetensors"),
        fingerprint,
        lambda: encode_episodes(episodes, both, dtype=torch.float16, progress=progress),
    )
    return TokenDataset(episodes, latents.unflatten(1, (2, -1)), torch.from_numpy(steps_between(episodes)))


def steps_between(episodes: Episodes) -> np.ndarray:
    """Displacements (m, m, rad) from each frame to the next, float32 [rows, 3]; NaN where an episode ends."""
    steps = np.full((episodes.rows, 3), np.nan, np.float32)
    for offset, length in zip(episodes.offsets.tolist(), episodes.lengths.tolist(), strict=True):
        poses = episodes.read("pose", np.arange(offset, offset + length))
        steps[offset : offset + length - 1] = displacements(poses)
    return steps


def train_navigation(
    dataset: TokenDataset,
    tokenizer: CompactTokenizer,
    out: Path,
    recipe: NavigationRecipe,
    *,
    perceptual: Perceptual | None = None,
    progress: Progress | None = None,
) -> NavigationWorldModel:
    """Train, validate and save to `out`, tokenizer included; an interrupted run continues from `out`/run.

    perceptual: images [M, 3, S, S] in 0..1, twice, to distances [M], e.g. LPIPS; only validation measures it.
    """
    parts = split(len(dataset.episodes), recipe.held_out)
    torch.manual_seed(recipe.loop.seed)
    model = models.build(recipe.kind, recipe.preset, SCALER, tokenizer=tokenizer)
    if not isinstance(model, NavigationWorldModel):
        raise AcidError(f"a {recipe.kind!r} does not imagine tokens of a tokenizer: use its own recipe")
    objective = models.objective(recipe.kind, recipe.objective, model)
    windows = dataset.windows(parts.train, model.config.context + 1)
    order = Shuffle(len(windows), recipe.loop.batch_size, recipe.loop.seed)

    def batches(start: int) -> Generator[tuple[Tensor, Tensor], None, None]:
        step = start
        while True:
            rows = torch.from_numpy(windows.frame_rows(order.indices(step)))
            mirrored = torch.from_numpy(np.random.default_rng([recipe.loop.seed, step]).random(len(rows)) < 0.5)
            yield dataset.look(rows, mirrored)
            step += 1

    clock = time.process_time()
    train(
        model.dynamics,
        lambda batch: objective(model, *batch),
        batches,
        recipe.loop,
        out / "run",
        progress=progress,
    )
    metadata = {
        "recipe": asdict(recipe),
        "data": dataset.episodes.attributes,
        "tokenizer": tokenizer.fingerprint,
        "cpu_seconds": round(time.process_time() - clock),
        "validation": validate(model.eval(), dataset, parts.held_out, perceptual),
    }
    models.save(model, recipe.kind, out, metadata, half_precision=recipe.half_precision)
    return model.requires_grad_(False)


@torch.no_grad()
def validate(
    model: NavigationWorldModel, dataset: TokenDataset, ids: np.ndarray, perceptual: Perceptual | None = None
) -> dict[str, float]:
    """On held-out windows: how well the next frame and the next eight are imagined under the true actions.

    Shares of tokens (and of their levels) of the next frame that are right: imagined, if the last frame is copied, and
    under the actions of other windows. Peak signal-to-noise ratios (dB), and perceptual distances if one is given,
    against the true frames, step by step: imagined, if the last frame is copied, and drawn from the true tokens.
    """
    context = model.config.context
    windows = dataset.windows(ids, context + HORIZON)
    chosen = np.random.default_rng(0).choice(len(windows), min(VALIDATION_WINDOWS, len(windows)), replace=False)
    rows = torch.from_numpy(windows.frame_rows(chosen))
    latents, actions = dataset.look(rows, torch.zeros(len(rows), dtype=torch.bool))
    before, after, actions = latents[:, :context], latents[:, context:], actions[:, context - 1 :]
    imagined = model.rollout(before, actions[:, None])[:, 0]
    shuffled = model.rollout(before, actions[:, None, :1].roll(1, 0))[:, 0, 0]
    last = before[:, -1]
    found: dict[str, float] = {}
    for name, guess in {"": imagined[:, 0], "_copied": last, "_shuffled_actions": shuffled}.items():
        right = model.quantiser.to_levels(guess) == model.quantiser.to_levels(after[:, 0])
        found[f"accuracy{name}"] = float(right.all(-1).float().mean())
        found[f"level_accuracy{name}"] = float(right.float().mean())
    true = torch.from_numpy(dataset.episodes.read("pixels", rows[:, context:].numpy())).float() / 255
    drawn = {"imagined": imagined, "copied": last[:, None].expand_as(after), "reconstructed": after}
    for name, shown in drawn.items():
        images = model.decode(shown)
        found |= _by_step(f"psnr_{name}", psnr(images, true))
        if perceptual is not None:
            found |= _by_step(f"perceptual_{name}", perceived(perceptual, images, true))
    return found


def _by_step(name: str, values: Tensor) -> dict[str, float]:
    """Means of values [B, H] over the windows."""
    return {f"{name}_{step + 1}": float(value) for step, value in enumerate(values.mean(0))}


@dataclass(frozen=True)
class NavigationVerifierRecipe:
    size: TransformerSize = LITE
    channels: tuple[int, ...] = ()
    fit: FitConfig = field(default_factory=lambda: LITE_FIT)
    held_out: float = 0.1  # share of the episodes that world model and verifier do not see


VERIFIER_RECIPES = {
    "paper": NavigationVerifierRecipe(PAPER, fit=PAPER_FIT),
    "lite": NavigationVerifierRecipe(LITE, (64, 64, 96), replace(LITE_FIT, steps=6_000, batch_size=128), held_out=0.2),
}


def verifier_recipe(name: str, *, steps: int | None = None, seed: int = 0) -> NavigationVerifierRecipe:
    chosen = look_up(VERIFIER_RECIPES, name, "recipe")
    return replace(chosen, fit=replace(chosen.fit, steps=steps or chosen.fit.steps, seed=seed))


def train_navigation_verifier(
    dataset: TokenDataset,
    tokenizer: CompactTokenizer,
    out: Path,
    recipe: NavigationVerifierRecipe,
    *,
    progress: Progress | None = None,
) -> Verifier:
    """A verifier of what decoded tokens show (`tokenizer.features`), frames as they are and mirrored; ten Euler steps.

    Its actions are displacements (m, m, rad) in units of their own standard deviations: `verifier_units` converts.
    """
    train_ids = split(len(dataset.episodes), recipe.held_out).train
    rows, mirrored = _with_mirrored(dataset.episodes, train_ids)
    latents = dataset.latents[rows, mirrored.long()]
    features = torch.cat([tokenizer.features(part.float()).half() for part in latents.split(1024)])
    clock = time.process_time()
    verifier = Verifier.fit(
        features,
        dataset.steps[rows] * torch.where(mirrored[:, None], dataset.steps.new_tensor(MIRROR), 1.0),
        torch.from_numpy(np.repeat(train_ids, 2 * dataset.episodes.lengths[train_ids])),
        size=recipe.size,
        training=recipe.fit,
        channels=recipe.channels,
        euler_steps=EULER_STEPS,
        folder=out / "run",
        progress=progress,
    )
    metadata = {
        "recipe": asdict(recipe),
        "data": dataset.episodes.attributes,
        "tokenizer": tokenizer.fingerprint,
        "cpu_seconds": round(time.process_time() - clock),
    }
    verifier.save(out, metadata=metadata)
    return verifier


def _with_mirrored(episodes: Episodes, ids: np.ndarray) -> tuple[Tensor, Tensor]:
    """Rows of the episodes, each episode followed by its mirrored copy, and which of them are mirrored.

    The copy is part of the same episode, so that both are held out together; no transition joins them, because no step
    leads on from an episode's last frame.
    """
    rows, mirrored = [], []
    for episode in ids.tolist():
        own = episodes.rows_of([episode])
        rows += [own, own]
        mirrored += [np.zeros(len(own), bool), np.ones(len(own), bool)]
    return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(mirrored))


def verifier_units(model_scaler: ActionScaler, verifier_scaler: ActionScaler) -> Callable[[Tensor], Tensor]:
    """From a model's normalised actions [..., H, A] to a verifier's, for `ActionConsistency(units=...)`."""
    return lambda actions: verifier_scaler.normalise(model_scaler.denormalise(actions))


def verifier_path(verifier_scaler: ActionScaler) -> Callable[[Tensor], Tensor]:
    """From a verifier's actions [..., H, 3] to the places they lead to, for `ActionConsistency(path=...)`.

    Places [..., H, 2] are in metres and seen from the pose at the start.
    """

    def places(actions: Tensor) -> Tensor:
        forward, sideways, turn = verifier_scaler.denormalise(actions).unbind(-1)
        yaw = turn.cumsum(-1) - turn  # at the beginning of each step
        cosine, sine = yaw.cos(), yaw.sin()
        return torch.stack([cosine * forward - sine * sideways, sine * forward + cosine * sideways], -1).cumsum(-2)

    return places
