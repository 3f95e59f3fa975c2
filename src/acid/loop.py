"""One loop for everything trainable: schedule, clipping, averaging, metrics, and resuming to the exact step.

Step s sees batch s and the random numbers of (seed, s), whatever came before; so a run that was killed and continued
ends with the same weights as one that was not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from acid import distributed
from acid.errors import AcidError, CheckpointError, is_number, need_package, some
from acid.files import (
    GrowingFile,
    clipped,
    load_torch,
    parse_json,
    read_bytes,
    reason,
    replacing,
    save_torch,
    write_text,
)

Losses = Mapping[str, Tensor]
Progress = Callable[[int, Mapping[str, float]], None]
STATE_FILE = "state.pt"
METRICS_FILE = "metrics.jsonl"
_REMEDY = "remove it to start over"


class TrainingError(AcidError, RuntimeError):
    """Training cannot go on, e.g. the loss is no longer a number."""


class SettingError(AcidError, ValueError):
    """A setting has a value that cannot be used."""


@dataclass(frozen=True)
class LoopConfig:
    steps: int = 10_000
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: float = 0.01  # share of the steps
    schedule: Literal["cosine", "constant"] = "cosine"  # of the learning rate, after the warm-up
    clip: float = 1.0  # of the gradient norm
    ema: float | None = None  # decay of a running average of the weights, which is then what training returns
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on GPUs, where it saves time
    seed: int = 0
    log_every: int = 50  # steps
    save_every: int = 500  # steps
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            value, default = getattr(self, entry.name), entry.default
            if is_number(default):
                whole = isinstance(default, int)
                self.check(entry.name, is_number(value, whole=whole), f"a {'whole ' if whole else ''}number")
        self.check("betas", type(self.betas) is tuple and all(map(is_number, self.betas)), "a pair of numbers")
        self.check("ema", self.ema is None or is_number(self.ema), "a number, or None")
        for name in ("steps", "batch_size", "log_every", "save_every"):
            self.check(name, getattr(self, name) >= 1, "at least 1")
        self.check("learning_rate", 0 < self.learning_rate < math.inf, "a positive number")
        self.check("weight_decay", 0 <= self.weight_decay < math.inf, "0 or a positive number")
        self.check("betas", all(0 <= beta < 1 for beta in self.betas), "from 0 up to but not including 1")
        self.check("warmup", 0 <= self.warmup <= 1, "a share of the steps, from 0 to 1")
        self.check("clip", self.clip > 0, "a positive number; inf does not clip")
        self.check("ema", self.ema is None or 0 < self.ema < 1, "inside (0, 1), or None")
        self.check("schedule", self.schedule in ("cosine", "constant"), "cosine or constant")
        self.check("precision", self.precision in ("auto", "float32", "bfloat16"), "auto, float32 or bfloat16")
        self.check("seed", self.seed >= 0, "0 or a positive number")

    def check(self, name: str, holds: bool, wanted: str) -> None:
        """A SettingError unless it holds (which nothing does for NaN)."""
        if not holds:
            raise SettingError(f"{name} must be {wanted}, got {name}={getattr(self, name)!r}")


def learning_rate(step: int, config: LoopConfig) -> float:
    """Linear warm-up, then a cosine down to zero, or all of it."""
    warmup = max(1, round(config.warmup * config.steps))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    if config.schedule == "constant":
        return config.learning_rate
    progress = (step - warmup) / max(1, config.steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    module: nn.Module,
    loss: Callable[[Any], Losses],
    batches: Callable[[int], Generator[Any, None, None]],
    config: LoopConfig,
    folder: Path | None = None,
    *,
    description: Mapping[str, Any] | None = None,
    device: torch.device | None = None,
    progress: Progress | None = None,
    micro_batch: int | None = None,
) -> nn.Module:
    """Minimise `loss(batch)["loss"]` over the module's parameters; `batches(start)` yields batch start, start+1, …

    Module and batches (tensors, and dataclasses, tuples and mappings of them) are moved to the device, by default the
    module's own. With a folder, state and metrics are kept there and calling again continues where the last call
    stopped, also after Ctrl-C; a run of another configuration or another `description` (JSON values) is refused.

    Processes of one group (see `acid.distributed`) train together: batches are then the shares of this process, and the
    first one writes the folder. micro_batch: most examples at once, to save memory; the gradients of a batch's parts
    are added up, which is the same if the loss is a mean over examples.
    """
    if config.tensorboard and folder is None:
        raise SettingError("tensorboard=True needs a folder to write to, and there is none")
    device = device or next(module.parameters()).device
    run = _Run(module.to(device), loss, config, folder, {"loop": asdict(config)} | dict(description or {}))
    start = run.resume()
    module.train()
    with (
        distributed.together(),
        torch.random.fork_rng([device] if device.type == "cuda" else []),  # the caller's random numbers go on untouched
        _patient_interrupt() as interrupted,
        _Metrics(run.folder, start, run.seconds, tensorboard=config.tensorboard) as metrics,
        closing(batches(start)) as stream,
    ):
        run.share_gradients()
        for step in range(start, config.steps):
            torch.manual_seed(distributed.seed(_step_seed(config.seed, step)))
            losses, norm = run.update(step, _parts(moved(next(stream), device), micro_batch))
            stop = distributed.anywhere(interrupted(), device)
            done = step + 1
            if done % config.log_every == 0 or done == config.steps:
                values = _numbers(losses)
                metrics.write(
                    done, values | {"gradient_norm": float(norm), "learning_rate": learning_rate(step, config)}
                )
                if progress:
                    progress(done, values)
            if done % config.save_every == 0 or done == config.steps or stop:
                run.save(done, metrics.seconds)
            if stop:
                raise KeyboardInterrupt
    return run.result()


def cpu_seconds(folder: Path) -> int:
    """CPU time that the finished run of a folder took, all its sessions together; 0 if that was not kept."""
    logged = _logged(folder / METRICS_FILE)
    return round(logged[-1]["cpu_seconds"]) if logged else 0


class _Run:
    """What changes from step to step, and its copy on disk."""

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Any], Losses],
        config: LoopConfig,
        folder: Path | None,
        description: Mapping[str, Any],
    ) -> None:
        self.module, self.loss, self.config = module, loss, config
        self.folder = folder if distributed.first() else None  # the others keep nothing
        device = next(module.parameters()).device
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=_uses_bfloat16(config, device))
        self.description = json.loads(json.dumps(description))  # as it will be read back
        self.seconds = 0.0  # of CPU time before this session
        self.optimizer = torch.optim.AdamW(
            _decay_groups(module, config.weight_decay), lr=config.learning_rate, betas=config.betas, fused=True
        )
        self.average = None
        if config.ema is not None:
            self.average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(config.ema), use_buffers=True)

    def share_gradients(self) -> None:
        """From now on, gradients are means over the processes, if there are several."""
        distributed.share(range(self.config.batch_size))  # complains if that cannot be done
        distributed.check_norms(self.module)
        if distributed.processes() > 1:
            self.loss = DistributedDataParallel(_Loss(self.module, self.loss))

    def update(self, step: int, parts: Sequence[tuple[float, Any]]) -> tuple[Losses, Tensor]:
        """One step down the gradient: the losses of a batch, given in parts with their shares, and the norm."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.config)
        self.optimizer.zero_grad(set_to_none=True)
        found = [self._descend(step, share, part, last=n == len(parts)) for n, (share, part) in enumerate(parts, 1)]
        shares = [share for share, _ in parts]
        losses = {name: _weighted([one[name] for one in found], shares) for name in found[0]}
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.module)
        return losses, norm

    def _descend(self, step: int, share: float, part: Any, *, last: bool) -> Losses:
        """Add the gradient of a part of a batch; its losses, which are means over the processes."""
        waits = isinstance(self.loss, DistributedDataParallel) and not last
        with self.loss.no_sync() if waits else nullcontext():
            with self.autocast:
                losses = _checked(self.loss(part))
            told = distributed.means(losses)
            if not torch.isfinite(told["loss"]):
                raise TrainingError(
                    f"the loss is not finite at step {step} ({_numbers(told)}); "
                    "lower the learning rate or check the data"
                )
            (losses["loss"] if share == 1 else losses["loss"] * share).backward()
        return told

    def result(self) -> nn.Module:
        """The trained module, its weights averaged if that was asked for."""
        if self.average is not None:
            self.module.load_state_dict(self.average.module.state_dict())
        return self.module.eval()

    def save(self, step: int, seconds: float) -> None:
        if self.folder is None:
            return
        state = {
            "step": step,
            "cpu_seconds": seconds,
            "description": json.dumps(self.description),
            "module": _changing(self.module),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else _changing(self.average),
        }
        with replacing(self.folder / STATE_FILE, TrainingError) as partial:
            save_torch(partial, state)

    def resume(self) -> int:
        """Load the last saved state, if any, which the first process reads; the step to go on from."""
        state = distributed.told_by_first(self._read)
        if state is None:
            return 0
        try:
            return self._take_over(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
            raise CheckpointError(
                f"{STATE_FILE} of {self.folder} does not fit this run ({reason(error)}); {_REMEDY}"
            ) from error

    def _take_over(self, state: Mapping[str, Any]) -> int:
        """Load a stored state; any common error if it is not one of this run."""
        step, seconds = state["step"], float(state["cpu_seconds"])
        if type(step) is not int or not 0 <= step <= self.config.steps or not 0 <= seconds < math.inf:
            raise ValueError(f"it is at step {step} of {self.config.steps}, after {seconds} s")
        _load_changing(self.module, state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if not torch.isfinite(value).all() or value.shape not in (parameter.shape, ()):
                    raise ValueError(f"{name} of the optimizer does not fit, or is not finite")
        if self.average is not None:
            _load_changing(self.average, state["average"])
        self.seconds = seconds
        return step

    def _read(self) -> dict[str, Any] | None:
        """The last saved state, which must be of this run."""
        if self.folder is None or not (self.folder / STATE_FILE).exists():
            return None
        path, device = self.folder / STATE_FILE, next(self.module.parameters()).device
        state = load_torch(path, CheckpointError, device=device, remedy=_REMEDY)
        if not isinstance(state, dict) or not isinstance(state.get("description"), str):
            raise CheckpointError(f"{path} is no training state of ours; {_REMEDY}")
        stored = parse_json(state["description"], f"the description in {path}", CheckpointError, _REMEDY)
        if differences := _differences(stored, self.description):
            raise CheckpointError(
                f"{self.folder} holds another run: {some(differences)}; "
                "choose another folder, or remove this one to start over"
            )
        return state


class _Loss(nn.Module):
    """A loss as a module, whose parameters are those of the network."""

    def __init__(self, module: nn.Module, loss: Callable[[Any], Losses]) -> None:
        super().__init__()
        self.module, self._loss = module, [loss]  # in a list: the parameters of a loss that is a module count once

    def forward(self, batch: Any) -> Losses:
        return self._loss[0](batch)


@contextmanager
def _patient_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C waits until the step under way can be saved; a second one does not. Tells whether it was pressed."""
    pressed = threading.Event()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed.is_set
        return

    def press(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def moved(value: Any, device: torch.device) -> Any:
    """Tensors, and dataclasses, tuples and mappings of them, on a device; all else as it is."""

    def move(tensor: Tensor) -> Tensor:
        if device.type == "cuda" and tensor.device.type == "cpu":
            return tensor.pin_memory().to(device, non_blocking=True)  # pins only what is not pinned
        return tensor.to(device)

    return _mapped(value, move)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed, also those in dataclasses, tuples and mappings."""
    if isinstance(value, Tensor):
        return change(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _mapped(getattr(value, field.name), change) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, tuple):
        return tuple(_mapped(part, change) for part in value)
    if isinstance(value, Mapping):
        return {name: _mapped(part, change) for name, part in value.items()}
    return value


def _parts(batch: Any, most: int | None) -> list[tuple[float, Any]]:
    """A batch in parts of at most so many examples, each with its share of the examples."""
    sizes: list[int] = []
    _mapped(batch, lambda tensor: sizes.append(len(tensor)) or tensor)
    size = sizes[0] if sizes else 0
    if most is None or most >= size:
        return [(1.0, batch)]
    cuts = [slice(first, min(first + most, size)) for first in range(0, size, most)]
    return [((cut.stop - cut.start) / size, _mapped(batch, lambda tensor, cut=cut: tensor[cut])) for cut in cuts]


def _weighted(values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    return torch.stack([share * value for share, value in zip(shares, values, strict=True)]).sum(0)


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


def _checked(losses: Losses) -> Losses:
    """What a loss gave, or a TrainingError that says what it must give."""
    if not isinstance(losses, Mapping) or not all(isinstance(value, Tensor) for value in losses.values()):
        raise TrainingError(f"a loss must give a mapping of names to tensors, got {clipped(losses)}")
    if "loss" not in losses:
        raise TrainingError(f"a loss must give 'loss', which is minimised, got {', '.join(map(repr, losses))}")
    if many := [name for name, value in losses.items() if value.numel() != 1]:
        raise TrainingError(f"a loss must give one number each, got {many[0]!r} of shape {list(losses[many[0]].shape)}")
    return losses


def _numbers(losses: Losses) -> dict[str, float]:
    return {name: value.detach().item() for name, value in losses.items()}


def _changing(module: nn.Module) -> dict[str, Tensor]:
    """The state without frozen weights, which may be large and never change."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def _load_changing(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put back what `_changing` gave; a ValueError if it is not of this module or not finite."""
    wanted = _changing(module)
    if state.keys() != wanted.keys() or any(state[name].shape != value.shape for name, value in wanted.items()):
        raise ValueError("it belongs to another network")
    if not all(torch.isfinite(value).all() for value in state.values()):
        raise ValueError("its weights are not finite")
    module.load_state_dict(state, strict=False)  # what is frozen is not in it


def _differences(stored: Any, wanted: Any, name: str = "") -> list[str]:
    """What is set differently, by dotted names."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        names = sorted(stored.keys() | wanted.keys())
        parts = [_differences(stored.get(n), wanted.get(n), f"{name}.{n}" if name else n) for n in names]
        return [difference for part in parts for difference in part]
    return [] if stored == wanted else [f"its {name} is {stored}, not {wanted}"]


def _logged(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of metrics; a last one that was not written whole is left out."""
    if not path.exists():
        return []
    *lines, _ = read_bytes(path, TrainingError).split(b"\n")
    found = [parse_json(line, f"a line of {path}", TrainingError, "remove the file") for line in lines]
    for values in found:
        known = isinstance(values, dict) and type(values.get("step")) is int
        if not known or not isinstance(values.get("cpu_seconds"), int | float):
            raise TrainingError(f"{path} holds something else than metrics, {clipped(values)}; remove the file")
    return found


class _Metrics:
    """JSONL, one line per logged step, and TensorBoard when asked for; nothing without a folder."""

    def __init__(self, folder: Path | None, start: int, seconds: float, *, tensorboard: bool) -> None:
        self._file = self._board = None
        self._clock = time.process_time() - seconds
        if folder is not None:
            path = folder / METRICS_FILE
            kept = [values for values in _logged(path) if values["step"] <= start]
            write_text(path, "".join(json.dumps(values) + "\n" for values in kept), TrainingError)
            if tensorboard:
                boards = need_package("torch.utils.tensorboard", "tensorboard", "a board", package="tensorboard")
                self._board = boards.SummaryWriter(folder)
            self._file = GrowingFile(path, TrainingError)

    @property
    def seconds(self) -> float:
        """CPU time of the run so far."""
        return time.process_time() - self._clock

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._file:
            line = json.dumps({"step": step, **values, "cpu_seconds": round(self.seconds, 2)}) + "\n"
            self._file.add(line.encode())
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def __enter__(self) -> _Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (self._file, self._board):
            if opened:
                opened.close()
