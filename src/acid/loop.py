"""One loop for everything trainable: schedule, clipping, averaging, metrics, and resuming to the exact step.

Step s sees batch s and the random numbers of (seed, s), whatever came before; so a run that was killed and continued
ends with the same weights as one that was not.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from acid.errors import AcidError, CheckpointError

Losses = Mapping[str, Tensor]
Progress = Callable[[int, Mapping[str, float]], None]
STATE_FILE = "state.pt"
METRICS_FILE = "metrics.jsonl"


class TrainingError(AcidError, RuntimeError):
    """Training cannot go on, e.g. the loss is no longer a number."""


@dataclass(frozen=True)
class LoopConfig:
    steps: int = 10_000
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: float = 0.01  # share of the steps
    clip: float = 1.0  # of the gradient norm
    ema: float | None = None  # decay of a running average of the weights, which is then what training returns
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on GPUs, where it pays
    seed: int = 0
    log_every: int = 50
    save_every: int = 500
    tensorboard: bool = False


def learning_rate(step: int, config: LoopConfig) -> float:
    """Linear warm-up, then a cosine down to zero."""
    warmup = max(1, round(config.warmup * config.steps))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, config.steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    module: nn.Module,
    loss: Callable[[Any], Losses],
    batches: Callable[[int], Generator[Any, None, None]],
    config: LoopConfig,
    folder: Path | None = None,
    *,
    progress: Progress | None = None,
) -> nn.Module:
    """Minimise `loss(batch)["loss"]` over the module's parameters; `batches(start)` yields batch start, start+1, …

    With a folder, state and metrics are kept there and calling again continues where the last call stopped.
    """
    device = next(module.parameters()).device
    optimizer = torch.optim.AdamW(
        _decay_groups(module, config.weight_decay), lr=config.learning_rate, betas=config.betas, fused=True
    )
    average = _copy_state(module) if config.ema else None
    start = _resume(folder, module, optimizer, average, config)
    metrics = _Metrics(folder, start, tensorboard=config.tensorboard) if folder else None
    random_state = torch.get_rng_state()  # the loop seeds every step; the caller's stream goes on as if it had not
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=_uses_bfloat16(config, device))
    module.train()
    stream = batches(start)
    for step in range(start, config.steps):
        torch.manual_seed(_step_seed(config.seed, step))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        with autocast:
            losses = loss(next(stream))
        _check(losses, step)
        optimizer.zero_grad(set_to_none=True)
        losses["loss"].backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), config.clip)
        optimizer.step()
        if average is not None and config.ema:
            _update_average(average, module, config.ema)
        done = step + 1
        if done % config.log_every == 0 or done == config.steps:
            values = _numbers(losses)
            if metrics:
                metrics.write(
                    done, values | {"gradient_norm": float(norm), "learning_rate": learning_rate(step, config)}
                )
            if progress:
                progress(done, values)
        if folder and (done % config.save_every == 0 or done == config.steps):
            _save(folder, done, module, optimizer, average, config)
    torch.set_rng_state(random_state)
    if metrics:
        metrics.close()
    stream.close()
    if average is not None:
        module.load_state_dict(average)
    return module.eval()


def _step_seed(seed: int, step: int) -> int:
    return (seed * 1_000_003 + step) % 2**63


def _uses_bfloat16(config: LoopConfig, device: torch.device) -> bool:
    return config.precision == "bfloat16" or (config.precision == "auto" and device.type == "cuda")


def _decay_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices only; biases, norms and other vectors are left alone."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def _numbers(losses: Losses) -> dict[str, float]:
    return {name: value.detach().item() for name, value in losses.items()}


def _check(losses: Losses, step: int) -> None:
    if not torch.isfinite(losses["loss"]):
        raise TrainingError(
            f"the loss is not finite at step {step} ({_numbers(losses)}); lower the learning rate or check the data"
        )


def _copy_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@torch.no_grad()
def _update_average(average: dict[str, Tensor], module: nn.Module, decay: float) -> None:
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            average[name].lerp_(value, 1 - decay)
        else:
            average[name].copy_(value)


def _save(
    folder: Path,
    step: int,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, Tensor] | None,
    config: LoopConfig,
) -> None:
    state = {
        "step": step,
        "config": json.dumps(asdict(config), sort_keys=True),
        "module": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "average": average,
    }
    temporary = folder / (STATE_FILE + ".partial")
    torch.save(state, temporary)
    os.replace(temporary, folder / STATE_FILE)


def _resume(
    folder: Path | None,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, Tensor] | None,
    config: LoopConfig,
) -> int:
    """Load the last saved state, if any; the step to go on from."""
    if folder is None:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / STATE_FILE
    if not path.exists():
        return 0
    try:
        state = torch.load(path, weights_only=True, map_location=next(module.parameters()).device)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read ({error}); remove it to start over") from error
    wanted = json.dumps(asdict(config), sort_keys=True)
    if state["config"] != wanted:
        raise CheckpointError(
            f"{path} belongs to a run with another configuration ({state['config']}); "
            "choose another folder or remove it to start over"
        )
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    if average is not None:
        average.update(state["average"])
    return int(state["step"])


class _Metrics:
    """JSONL, one line per logged step, and TensorBoard when asked for."""

    def __init__(self, folder: Path, start: int, *, tensorboard: bool) -> None:
        path = folder / METRICS_FILE
        kept = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in kept if line.endswith("}") and json.loads(line)["step"] <= start]
        path.write_text("".join(line + "\n" for line in kept))
        self._file = path.open("a")
        self._board = _open_tensorboard(folder) if tensorboard else None
        self._clock = time.process_time()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        seconds = time.process_time() - self._clock
        self._file.write(json.dumps({"step": step, **values, "cpu_seconds": round(seconds, 2)}) + "\n")
        self._file.flush()
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board:
            self._board.close()


def _open_tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise AcidError("TensorBoard is not installed; run: pip install 'acid-planning[tensorboard]'") from error
    return SummaryWriter(folder)
