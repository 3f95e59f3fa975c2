"""A search as a recording for the rerun viewer: what was tried, what it cost, what became of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import AcidError, need_package
from acid.planning import Iteration
from acid.types import ActionScaler

GREY, BLUE, DARK = (160, 160, 160, 60), (0, 114, 178), (30, 30, 30)
STEP = 0.5  # width of an environment step in a picture of actions, in standard deviations of an action


class Recording:
    """An observer that writes a `.rrd` file.

    Two timelines: `iteration` counts those of all searches one after another, `step` the model steps of an episode.
    """

    def __init__(self, path: Path, scaler: ActionScaler) -> None:
        if path.suffix != ".rrd":
            raise AcidError(f"the file of a recording must end in .rrd, got {path.name!r}")
        self._rerun = rerun = need_package("rerun", "rerun", "a recording", package="rerun-sdk")
        self._scaler = scaler
        self._stream: Any = rerun.RecordingStream("acid")
        self._shown = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream.save(path)
        except (OSError, RuntimeError) as error:
            raise AcidError(f"the recording {path} cannot be written: {error}") from error

    def __call__(self, iteration: Iteration) -> None:
        """Called by a planner whose `observer` this is."""
        self._stream.set_time("iteration", sequence=self._shown)
        self._shown += 1
        for row, problem in enumerate(iteration.problems):
            self._costs([f"problem {problem}"], iteration, row)
            self._actions([f"problem {problem}"], iteration, row)
        self._stream.reset_time()

    def show(self, name: str, frames: np.ndarray, *, first: int = 0) -> None:
        """Images uint8 [T, S, S, 3] at the model steps `first`, `first` + 1, …"""
        for step, frame in enumerate(frames, start=first):
            self._stream.set_time("step", sequence=step)
            self._stream.log([name], self._rerun.Image(frame))
        self._stream.reset_time()

    def plot(self, name: str, values: np.ndarray, *, first: int = 0) -> None:
        """Numbers [T] at the model steps `first`, `first` + 1, …"""
        for step, value in enumerate(values, start=first):
            self._stream.set_time("step", sequence=step)
            self._number([name], value)
        self._stream.reset_time()

    def close(self) -> None:
        """Write what is left; the file is whole only then."""
        self._stream.disconnect()

    def _number(self, name: list[str], value: Any) -> None:
        self._stream.log(name, self._rerun.Scalars(float(value)))

    def _costs(self, root: list[str], iteration: Iteration, row: int) -> None:
        elites = iteration.elites[row]
        self._number([*root, "total", "best"], iteration.total[row, elites[0]])
        self._number([*root, "total", "median"], iteration.total[row].median())
        for name, values in iteration.terms.items():
            self._number([*root, "elites", name], values[row, elites].mean())
            self._number([*root, "spread", name], iteration.spreads[name][row])
            self._number([*root, "weight", name], iteration.weights[name][row])
        if iteration.std is not None:
            self._number([*root, "std"], iteration.std[row].mean())

    def _actions(self, root: list[str], iteration: Iteration, row: int) -> None:
        """Every candidate as a line over the steps, one picture per number of an environment action."""
        steps = self._steps(iteration.actions[row])
        elites = iteration.elites[row].numpy(force=True)
        mean = None
        if iteration.mean is not None and iteration.mean.shape[1:] == iteration.actions.shape[2:]:
            mean = self._steps(iteration.mean[row][None])
        for number in range(self._scaler.env_size):
            self._lines([*root, f"action {number}", "candidates"], steps[..., number], GREY)
            self._lines([*root, f"action {number}", "elites"], steps[elites, :, number], BLUE)
            if mean is not None:
                self._lines([*root, f"action {number}", "mean"], mean[..., number], DARK)

    def _steps(self, actions: Any) -> np.ndarray:
        """Normalised actions [M, H, A] as environment steps [M, H·frameskip, a], still normalised."""
        return actions.float().reshape(len(actions), -1, self._scaler.env_size).numpy(force=True)

    def _lines(self, name: list[str], values: np.ndarray, colour: tuple[int, ...]) -> None:
        """Values [M, T] over the steps; pictures count downwards, so larger is drawn above."""
        across = np.broadcast_to(STEP * np.arange(values.shape[1], dtype=np.float32), values.shape)
        strips = np.stack([across, -values], -1)
        self._stream.log(name, self._rerun.LineStrips2D(strips, colors=[colour], radii=[0.01]))
