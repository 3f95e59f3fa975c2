"""Validation in pixels: how imagined frames, once drawn, compare with the true ones."""

from __future__ import annotations

import torch
from torch import Tensor

from acid.loop import moved
from acid.models import NavigationWorldModel, VideoModel
from acid.nn import lpips
from acid.nn.pictures import Perceptual, perceived, psnr
from acid.training.dataset import WindowReader

HORIZON = 8  # steps that validation imagines
VALIDATION_WINDOWS = 128


def perceptual_distance(device: torch.device, *, needed: bool) -> Perceptual | None:
    """LPIPS; None where its weights are not installed, unless it is needed."""
    try:
        return lpips.load_lpips().to(device)
    except lpips.LpipsError:
        if needed:
            raise
        return None


@torch.no_grad()
def validate_pictures(model: VideoModel, reader: WindowReader) -> dict[str, float]:
    """How well the frames behind the context, HORIZON of them, are imagined under the true actions of held-out windows.

    Of the next frame: shares of tokens (and of their levels) that are right, or the squared error of latents that are
    no tokens: imagined, if the last frame is copied, and under the actions of other windows. Peak signal-to-noise
    ratios (dB), and perceptual distances if LPIPS is there, against the true frames, step by step: imagined, if the
    last frame is copied, and drawn from the true latents.
    """
    context, device = model.config.context, next(model.parameters()).device
    chosen = reader.windows.sample(VALIDATION_WINDOWS)
    batch = moved(reader.read(chosen), device)
    before, after, actions = batch.frames[:, :context], batch.frames[:, context:], batch.actions[:, context - 1 :]
    imagined = model.rollout(before, actions[:, None])[:, 0]
    shuffled = model.rollout(before, actions[:, None, :1].roll(1, 0))[:, 0, 0]
    last = before[:, -1]
    found: dict[str, float] = {}
    for name, guess in {"": imagined[:, 0], "_copied": last, "_shuffled_actions": shuffled}.items():
        if not isinstance(model, NavigationWorldModel):
            found[f"error{name}"] = float((guess - after[:, 0]).square().mean())
            continue
        right = model.quantiser.to_levels(guess) == model.quantiser.to_levels(after[:, 0])
        found[f"accuracy{name}"] = float(right.all(-1).float().mean())
        found[f"level_accuracy{name}"] = float(right.float().mean())
    rows = reader.windows.frame_rows(chosen)[:, context:]
    true = torch.from_numpy(reader.episodes.read("pixels", rows)).to(device).float() / 255
    distance = perceptual_distance(device, needed=False)
    drawn = {"imagined": imagined, "copied": last[:, None].expand_as(after), "reconstructed": after}
    for name, shown in drawn.items():
        images = model.decode(shown)
        found |= _by_step(f"psnr_{name}", psnr(images, true))
        if distance is not None:
            found |= _by_step(f"perceptual_{name}", perceived(distance, images, true))
    return found


def _by_step(name: str, values: Tensor) -> dict[str, float]:
    """Means of values [B, H] over the windows."""
    return {f"{name}_{step + 1}": float(value) for step, value in enumerate(values.mean(0))}
