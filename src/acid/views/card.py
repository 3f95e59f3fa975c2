"""A model card for a cell: how its parts were made and what they know, from what their checkpoints tell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from acid.checkpoint import Checkpoint
from acid.errors import AcidError, DataError
from acid.evaluation import Cell
from acid.files import parse_json, read_json_object, write_text
from acid.training import recipe
from acid.training.probe import probe
from acid.views.names import called

CARD, PROBE = "README.md", "probe.json"
PARTS = {
    "tokenizer": "turns frames into tokens and back",
    "model": "the world model",
    "verifier": "the inverse dynamics model that ACID plans with",
    "policy": "the goal-conditioned policy that planning is compared with",
    "decoder": "draws latents, for inspection only",
    "readout": "reads where the particles are, for measuring only",
}
DIMENSIONS = {"navigation": ("forward", "sideways", "turn")}  # of an action that the verifier infers
STILL = (
    "`imagined k of still`: squared error of imagining k model steps ahead from one frame, as a share of the error of "
    "not moving."
)
IMAGES = (
    "`psnr` in dB and `perceptual` (LPIPS) compare pictures with the true frames. imagined: under the true actions;",
    "copied: the last frame; reconstructed: the true frames through the tokenizer; mean image: of the training data.",
    "`accuracy`: share of the next frame's tokens (or of their levels) that are right.",
)
_STEP = re.compile(r"_\d+$")


def write_card(cell: Cell, data: Path | None = None, out: Path | None = None) -> Path:
    """Write the cell's card; with a dataset, probe the latents first (kept beside the card for the next time).

    By default it goes to the cell's folder, or to the user's for a cell that is shipped.
    """
    folder = out or (cell.user / cell.task / cell.model if cell.folder is None else cell.root)
    known = next((f / PROBE for f in (folder, cell.root) if (f / PROBE).exists()), None)
    probes = {} if known is None else read_probes(known)
    if data is not None:
        probes = probe(cell.root / "model", data, cell.task)
    text = "\n".join(_lines(cell, probes)) + "\n"
    if data is not None:
        write_text(folder / PROBE, json.dumps(probes, indent=2) + "\n")
    path = folder / CARD
    write_text(path, text)
    return path


def read_probes(path: Path) -> dict[str, float]:
    """What an earlier card measured."""
    found = read_json_object(path, remedy="probe again with --data")
    if not all(isinstance(value, int | float) for value in found.values()):
        raise DataError(f"{path} must hold a number by quantity; probe again with --data")
    return found


def _lines(cell: Cell, probes: Mapping[str, float]) -> list[str]:
    stored = {part: cell.stored(part) for part in PARTS if cell.has(part) or part == "model"}
    model = stored["model"].metadata
    if "collection" not in model.get("data", {}):
        raise AcidError(f"{cell.root / 'model'} does not tell how it was trained: cards are for models trained here")
    title = f"# {called(cell.model)} {model['scale']} on {called(cell.task)}"
    lines = [title, "", "```sh", *_commands(cell, stored), "```", ""]
    lines += ["| part | | weights | steps | CPU minutes |", "|---|---|---:|---:|---:|"]
    for part, found in stored.items():
        weights = sum(value.numel() for value in found.state.values())
        minutes = found.metadata["cpu_seconds"] / 60
        steps = found.metadata["recipe"]["loop"]["steps"]
        lines.append(f"| `{part}` | {PARTS[part]} | {weights:,} | {steps:,} | {minutes:.0f} |")
    lines += ["", f"{100 * model['partition']['held_out']:g} % of the episodes were held out from all of it.", ""]
    config = stored["model"].config
    if frozen := config.get("tokenizer", config)["encoder"].get("name"):
        lines += [f"The frames are encoded by a frozen {frozen}, which is not part of the weights.", ""]
    return [*lines, "## What it knows", "", *_knowledge(cell, stored, probes)]


def _commands(cell: Cell, stored: Mapping[str, Checkpoint]) -> list[str]:
    """What made it; settings that are the recipe's own are left out."""
    collected = stored["model"].metadata["data"]["collection"]
    lines = [_collect(cell, collected)]
    for part, found in stored.items():
        own = found.metadata["data"]["collection"]
        data = "" if own == collected else f" --data data/{cell.task}-{part}.h5"
        lines += [] if own == collected else [_collect(cell, own) + data.replace("--data", "--out")]
        usual = _flat(asdict(recipe(part, cell.model, found.metadata["scale"])))
        recorded = _flat(found.metadata["recipe"])
        changed = {name: value for name, value in recorded.items() if name in usual and usual[name] != value}
        flags = "".join(f" --{name.replace('_', '-')} {_flag(value)}" for name, value in changed.items())
        if _network(recorded) - _network(usual):  # another kind of network than the recipe's is now
            flags = "  # by an earlier recipe"
        lines.append(f"acid train {part} {cell.model} --task {cell.task}{data}{flags}")
    return lines


def _network(settings: Mapping[str, Any]) -> set[str]:
    return {name for name in settings if name.startswith("network.")}


def _collect(cell: Cell, described: str) -> str:
    made = parse_json(described, f"the collection of {cell.root}")
    options = f"--episodes {made['episodes']} --size {made['size']} --seed {made['seed']}"
    return f"acid collect {cell.task} {options}"


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Numbers, texts and switches by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{name}.")
        elif value is not None:
            found[f"{above}{name}"] = list(value) if isinstance(value, list | tuple) else value
    return found


def _flag(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _knowledge(cell: Cell, stored: Mapping[str, Checkpoint], probes: Mapping[str, float]) -> list[str]:
    measured = stored["model"].metadata["validation"]
    by_step = _by_step(measured)
    lines = ["| held out | |", "|---|---|"]
    if "tokenizer" in stored:
        seen = stored["tokenizer"].metadata["validation"]
        lines += [f"| tokenizer: {name.replace('_', ' ')} | {value:.3g} |" for name, value in seen.items()]
    once = {name: value for name, value in measured.items() if not _STEP.search(name)}
    lines += [f"| {name.replace('_', ' ')} | {value:.3g} |" for name, value in once.items()]
    lines += [f"| linear probe of {name}, R² | {value:.3f} |" for name, value in probes.items()]
    for part in ("verifier", "policy"):
        if part in stored:
            report = stored[part].metadata["report"]
            one, ten = (sum(report[key]) / len(report[key]) for key in ("one_step", "ten_steps"))
            lines.append(f"| {part}: error / action variance, one Euler step (ten) | {one:.3f} ({ten:.3f}) |")
            names = DIMENSIONS.get(cell.task, ())
            for number, name in enumerate(names):  # of a policy's several steps their mean
                one, ten = (fmean(report[key][number :: len(names)]) for key in ("one_step", "ten_steps"))
                lines.append(f"| {part}: the same of {name} alone | {one:.3f} ({ten:.3f}) |")
    if "error_of_mean_picture" in (drawn := stored["decoder"].metadata["validation"] if "decoder" in stored else {}):
        share = drawn["error"] / drawn["error_of_mean_picture"]
        lines.append(f"| decoder: squared error of drawing / that of the mean picture | {share:.3f} |")
    if "readout" in stored:
        error = stored["readout"].metadata["validation"]["chamfer"]
        lines.append(f"| readout: Chamfer distance to the particles | {error:.3f} |")
    return [*lines, "", *(_steps_table(by_step) if by_step else [STILL])]


def _by_step(measured: Mapping[str, float]) -> dict[str, list[float]]:
    """What was measured at every step ahead, from names that end in its number."""
    found: dict[str, list[float]] = {}
    for name, value in measured.items():
        if _STEP.search(name):
            found.setdefault(_STEP.sub("", name), []).append(value)
    return found


def _steps_table(by_step: Mapping[str, list[float]]) -> list[str]:
    steps = range(1, 1 + max(map(len, by_step.values())))
    lines = [f"| steps ahead | {' | '.join(map(str, steps))} |", f"|---|{'---:|' * len(steps)}"]
    for name, values in by_step.items():
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(f'{value:.3g}' for value in values)} |")
    return [*lines, "", *IMAGES]
