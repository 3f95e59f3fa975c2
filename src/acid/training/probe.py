"""How well linear probes, fitted on the training episodes, read the physical state from a world model's latents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acid import models, tasks
from acid.data import Episodes
from acid.models import LearnedWorldModel
from acid.training.dataset import partition_of

EPISODES = 300  # at most, for fitting; a third of that for testing
STRIDE = 5  # neighbouring frames tell the same
RIDGE = 1e-4  # of the mean variance of the latents
CHUNK = 256  # frames encoded at once


@torch.no_grad()
def probe(model_folder: Path, data: Path, task_name: str) -> dict[str, float]:
    """Held-out R² of every named physical quantity of the task, explained linearly by the latent of one frame."""
    model = models.load(model_folder)
    episodes = Episodes(data, require=("pixels", "action"))
    parts = partition_of(model_folder, episodes)
    task = tasks.make(task_name)
    fit_latents, fit_state = _encode(model, task, episodes, parts.train[:EPISODES])
    latents, state = _encode(model, task, episodes, parts.held_out[: EPISODES // 3])
    return {name: r2(fit_latents, fit_state[name], latents, state[name]) for name in state}


def r2(fit_inputs: Tensor, fit_targets: Tensor, inputs: Tensor, targets: Tensor) -> float:
    """Ridge regression from [n, D] to [n, k]: the explained share of the variance on other samples [m, D], [m, k]."""
    mean_in, mean_out = fit_inputs.mean(0), fit_targets.mean(0)
    x, y = fit_inputs - mean_in, fit_targets - mean_out
    gram = x.T @ x
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    predicted = (inputs - mean_in) @ torch.linalg.solve(gram + ridge, x.T @ y) + mean_out
    error = (targets - predicted).square().sum()
    return float(1 - error / (targets - targets.mean(0)).square().sum())


def _encode(
    model: LearnedWorldModel, task: tasks.Task, episodes: Episodes, ids: np.ndarray
) -> tuple[Tensor, dict[str, Tensor]]:
    """Latents [n, D] of some frames and the named quantities [n, k] that they show, in double precision."""
    latents: list[Tensor] = []
    found: dict[str, list[np.ndarray]] = {}
    for episode in ids.tolist():
        columns = {name: values[::STRIDE] for name, values in episodes.episode(episode).items()}
        pixels = torch.from_numpy(columns.pop("pixels"))
        latents += [model.encode(chunk).flatten(1) for chunk in pixels.split(CHUNK)]
        for name, values in task.physical(columns).items():
            found.setdefault(name, []).append(values.reshape(len(pixels), -1))
    return torch.cat(latents).double(), {n: torch.from_numpy(np.concatenate(v)).double() for n, v in found.items()}
