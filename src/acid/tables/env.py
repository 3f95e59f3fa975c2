"""The paper's figure of its six tasks, drawn by our simulators."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from acid import tasks
from acid.evaluation import Cell, Protocol, shipped
from acid.evaluation.jobs import Progress
from acid.report.images import save_image
from acid.report.shapes import Picture
from acid.report.sheet import SheetRow, sheet
from acid.report.style import INK, Look
from acid.tables.table import Findings, Table

TASKS = ("cube", "reacher", "pusht", "rope", "granular", "navigation")
SIZE = 224
CAPTIONS = {
    "cube": "Cube: an arm moves a cube",
    "reacher": "Reacher: two joints, a pose to reach",
    "pusht": "Push-T: a disc pushes a block",
    "rope": "Rope: a stick pushes a rope",
    "granular": "Granular: a board pushes grains",
    "navigation": "Navigation: a robot looks for a view",
}


def file_of(findings: Findings, task: str) -> Path:
    return findings.options.results / "env" / f"{task}.png"


def measure(findings: Findings, progress: Progress) -> None:
    """Draw the first start of every task's test problems, unless that was done."""
    from PIL import Image

    for done, name in enumerate(TASKS):
        progress(done, len(TASKS))
        path = file_of(findings, name)
        if path.is_file():
            continue
        model = next(cell.split("/")[1] for cell in shipped() if cell.startswith(f"{name}/"))
        protocol = Protocol.of(tasks.task_class(name).setup, episodes=1)
        instance = Cell(name, model).instances(protocol).unsolved[0]
        with closing(tasks.make(name, size=SIZE)) as task:
            task.set_state(instance.start_state)
            frame = task.render()
        save_image(Image.fromarray(frame), path)
    progress(len(TASKS), len(TASKS))


def _frames(findings: Findings) -> dict[str, np.ndarray]:
    from PIL import Image

    paths = {name: file_of(findings, name) for name in TASKS}
    return {name: np.asarray(Image.open(path).convert("RGB")) for name, path in paths.items() if path.is_file()}


def show(findings: Findings) -> list[Picture]:
    frames = _frames(findings)
    if not frames:
        return []
    text = f"The start of the first test problem of each, drawn at {SIZE} px."
    return [Picture("The six tasks", text, list(frames.values()), [CAPTIONS[name] for name in frames])]


def draw(findings: Findings, folder: Path) -> list[Path]:
    frames = _frames(findings)
    path = folder / "env.png"
    row = SheetRow(Look("The six tasks", INK), f"at {SIZE} px", np.stack(list(frames.values())))
    sheet(path, [row], titles=[CAPTIONS[name] for name in frames], scale=1)
    return [path]


ENV = Table(
    name="env",
    title="Figure env: the six tasks",
    studies=(),
    episodes=1,
    measure=measure,
    after=lambda findings: [f"- {CAPTIONS[name]}" for name in _frames(findings)],
    show=show,
    draw=draw,
    legend=(
        "Our own simulators: MuJoCo (Cube, Reacher, navigation), pymunk (Push-T), particles (Rope, Granular).",
        "The paper's Rope and Granular are simulated in NVIDIA FleX, and its navigation is the RECON dataset.",
    ),
)
