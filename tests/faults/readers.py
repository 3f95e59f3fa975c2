"""Every reader of files with a small valid file to damage: `READERS[name]` makes the files and returns a Reader."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from data.lerobot_files import png, write_lerobot
from data.recon_files import encoded, write_trajectory
from fake_rows import keep, row
from hypothesis import strategies as st
from torch import nn

from acid import models
from acid.checkpoint import CONFIG, WEIGHTS, fingerprint
from acid.data import Episodes, EpisodeWriter, cached_latents, import_episodes, partition
from acid.data.dinowm import DinoWmFolder
from acid.data.lance_tables import read_lance
from acid.data.lerobot import read_lerobot
from acid.data.nwm import read_folder
from acid.data.recon import read_trajectory
from acid.evaluation import Cell, Instance, Instances, Protocol, read_rows, summarise_rows
from acid.evaluation.instances import load_instances, save_instances
from acid.evaluation.play import Film
from acid.integrations.hub import PretrainedCell
from acid.loop import METRICS_FILE, STATE_FILE, LoopConfig, train
from acid.models.jepa import JepaConfig, JepaWorldModel
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ConvConfig
from acid.report.reel import Curve, Reel, Track
from acid.serving.trust import Trust, calibrate
from acid.tables import latency, spread
from acid.tables.latency import LATENCY
from acid.tables.rollouts import Rollouts
from acid.tables.spread import SPREAD
from acid.tables.table import Findings, Options
from acid.types import ActionScaler
from acid.verifier import TransformerSize, Verifier
from acid.verifier.flow import FlowConfig
from acid.views.card import read_probes
from faults.damage import damaged_bytes, damaged_json

PUBLISHED = Path(__file__).resolve().parent.parent / "integrations" / "fixtures" / "lewm"
SCALER = ActionScaler((0.0, 0.5), (1.0, 2.0))


@dataclass(frozen=True)
class Reader:
    file: Path  # that is damaged
    read: Callable[[], Any]
    damage: Any  # a strategy that gives bytes


def _json_reader(file: Path, read: Callable[[], Any]) -> Reader:
    return Reader(file, read, damaged_json(json.loads(file.read_text())) | damaged_bytes(file.read_bytes()))


def _config_reader(file: Path, read: Callable[[], Any]) -> Reader:
    """Without the digest, as in the first checkpoints, damage is not noticed by it."""
    whole = json.loads(file.read_text())
    old = damaged_json({name: value for name, value in whole.items() if name != "digest"})
    return Reader(file, read, old | old | damaged_json(whole) | damaged_bytes(file.read_bytes()))


def _lines_reader(file: Path, read: Callable[[], Any]) -> Reader:
    lines = file.read_bytes().splitlines(keepends=True)

    def with_line(number: int) -> Any:
        before, after = b"".join(lines[:number]), b"".join(lines[number + 1 :])
        return damaged_json(json.loads(lines[number])).map(lambda line: before + line + b"\n" + after)

    one = st.integers(0, len(lines) - 1).flatmap(with_line)
    whole = st.permutations(lines).map(b"".join) | st.just(b"".join(lines[:-1])) | st.just(b"".join(lines) * 2)
    return Reader(file, read, one | one | whole | damaged_bytes(file.read_bytes()))


def _bytes_reader(file: Path, read: Callable[[], Any]) -> Reader:
    return Reader(file, read, damaged_bytes(file.read_bytes()))


def _verifier(folder: Path) -> Path:
    torch.manual_seed(0)
    flow = FlowConfig(3, 1, 2, TransformerSize(8, 1, 2))
    Verifier(flow, SCALER).save(folder / "verifier", metadata={"task": "reacher", "model": "lewm"})
    return folder / "verifier"


def _model(folder: Path) -> Path:
    torch.manual_seed(0)
    encoder = ConvConfig(image_size=16, width=8)
    predictor = CausalConfig(frames=2, width=8, depth=1, heads=2, head_width=4, mlp_width=8, dropout=0.0)
    config = JepaConfig(2, 4, 8, 4, encoder, predictor, standardise=True)
    models.save(JepaWorldModel(config, SCALER), "lewm", folder / "model", {"task": "reacher", "model": "lewm"})
    return folder / "model"


def _imagine(folder: Path) -> None:
    model: Any = models.load(folder)
    observation, _, actions = model.fake_input()
    model.rollout(model.encode(observation), actions)


def checkpoint_of_a_verifier(folder: Path) -> Reader:
    made = _verifier(folder)
    latents = torch.zeros(2, 1, 3)
    return _config_reader(made / CONFIG, lambda: Verifier.load(made).infer(latents, latents))


def checkpoint_of_a_model(folder: Path) -> Reader:
    made = _model(folder)
    return _config_reader(made / CONFIG, lambda: _imagine(made))


def weights(folder: Path) -> Reader:
    made = _verifier(folder)
    return _bytes_reader(made / WEIGHTS, lambda: Verifier.load(made))


def rows(folder: Path) -> Reader:
    file = keep(folder / "rows.jsonl", [row(number, metrics={"ate_m": 0.5}) for number in range(4)])
    return _lines_reader(file, lambda: summarise_rows(read_rows([file])))


def instances(folder: Path) -> Reader:
    protocol, file = Protocol(goal_offset=5, budget=10, episodes=3), folder / "instances-test.jsonl"
    made = [
        Instance(
            id=f"i{n}",
            episode=n,
            start_step=0,
            draw=n,
            solved=False,
            start_state=np.arange(2.0) + n,
            goal_state=np.ones(2),
        )
        for n in range(4)
    ]
    save_instances(file, Instances(made), protocol, "line")
    return _lines_reader(file, lambda: load_instances(file, protocol, "line"))


def lambdas(folder: Path) -> Reader:
    cell = Cell("reacher", "lewm", folder, folder)
    cell.choose_lambdas({"acid": 0.07}, "a test")
    return _json_reader(folder / "lambda.json", lambda: cell.lambdas)


def _dataset(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    with EpisodeWriter(folder / "data.h5", attributes={"task": "line"}) as writer:
        for _ in range(4):
            pixels = generator.integers(0, 255, (5, 8, 8, 3)).astype(np.uint8)
            writer.write({"pixels": pixels, "action": generator.normal(size=(5, 2)).astype(np.float32)})
    return folder / "data.h5"


def split(folder: Path) -> Reader:
    episodes = Episodes(_dataset(folder))
    partition(episodes)
    return _json_reader(folder / "data.split.json", lambda: partition(episodes))


def _read_all(path: Path) -> None:
    with Episodes(path) as episodes:
        for column in episodes.columns:
            episodes.read(column, np.arange(min(episodes.rows, 1000)))


def dataset(folder: Path) -> Reader:
    file = _dataset(folder)
    return _bytes_reader(file, lambda: _read_all(file))


def dataset_that_lies(folder: Path) -> Reader:
    """Episodes whose lengths, offsets and columns are whatever comes: written by HDF5 itself, so it believes them."""
    file = folder / "lies.h5"
    number = st.sampled_from([0, 1, 3, -1, 2**31, 2**62, 10**9, 10**12])
    shape = st.lists(st.sampled_from([0, 1, 2, 5, 10**3, 10**9]), min_size=0, max_size=4)

    @st.composite
    def damage(draw: Any) -> bytes:
        file.unlink(missing_ok=True)
        with h5py.File(file, "w") as made:
            for name in draw(st.lists(st.sampled_from(["ep_len", "ep_offset", "action", "pixels"]), unique=True)):
                how = draw(st.sampled_from(["numbers", "declared", "external", "link", "text", "group"]))
                if how == "numbers":
                    made[name] = np.array(draw(st.lists(number, max_size=4)), draw(st.sampled_from(["i8", "f8"])))
                elif how == "declared":
                    size = tuple(draw(shape))
                    chunks = tuple(min(max(n, 1), 5) for n in size) if size and 0 not in size else None
                    made.create_dataset(name, size, "f4", chunks=chunks)
                elif how == "external":
                    made.create_dataset(name, (8,), "u1", external=[("/etc/passwd", 0, 8)])
                elif how == "link":
                    made[name] = h5py.ExternalLink("/dev/zero", "/x") if draw(st.booleans()) else h5py.SoftLink("/gone")
                elif how == "text":
                    made[name] = draw(st.sampled_from(["text", "é"]))
                else:
                    made.create_group(name)
        return file.read_bytes()

    return Reader(file, lambda: _read_all(file), damage())


def recon(folder: Path) -> Reader:
    file = folder / "t0.hdf5"
    write_trajectory(file, 1, 4)
    return _bytes_reader(file, lambda: read_trajectory(file, 8))


def dinowm(folder: Path) -> Reader:
    torch.save(torch.rand(2, 3, 4, 4), folder / "states.pth")
    torch.save(torch.rand(2, 3, 4), folder / "actions.pth")
    for index in range(2):
        (folder / f"{index:06d}").mkdir(exist_ok=True)
        torch.save(torch.zeros(3, 8, 8, 3), folder / f"{index:06d}" / "obses.pth")
    return _bytes_reader(folder / "actions.pth", lambda: list(DinoWmFolder(folder)))


def nwm(folder: Path) -> Reader:
    file = folder / "traj_data.pkl"
    file.write_bytes(pickle.dumps({"position": np.zeros((3, 2)), "yaw": np.zeros(3)}))
    for step in range(3):
        (folder / f"{step}.jpg").write_bytes(encoded(np.zeros((6, 8, 3), np.uint8)))
    return _bytes_reader(file, lambda: read_folder(folder, 8))


def packed(folder: Path) -> Reader:
    import zstandard

    with EpisodeWriter(folder / "a.h5") as writer:
        writer.write({"action": np.zeros((4, 1), np.float32)})
    file = folder / "a.h5.zst"
    file.write_bytes(zstandard.compress((folder / "a.h5").read_bytes()))

    def read() -> None:
        (folder / "b.h5").unlink(missing_ok=True)
        import_episodes(file, folder / "b.h5", "hdf5")

    return _bytes_reader(file, read)


def published_modules(folder: Path) -> Reader:
    from acid.integrations.pickled import read_pickled, state_of

    file = folder / "model_latest.pth"
    torch.save({"epoch": 1, "predictor": nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))}, file)
    return _bytes_reader(file, lambda: state_of(read_pickled(file)))


def published_config(folder: Path) -> Reader:
    from acid.integrations.published import read_config

    (folder / "config.json").write_bytes((PUBLISHED / "config.json").read_bytes())
    return _json_reader(folder / "config.json", lambda: read_config(folder))


def published_weights(folder: Path) -> Reader:
    from acid.integrations.published import load_published

    for name in ("config.json", "weights.pt"):
        (folder / name).write_bytes((PUBLISHED / name).read_bytes())
    return _bytes_reader(folder / "weights.pt", lambda: load_published(folder, action_scaler="identity"))


def _train(folder: Path) -> None:
    torch.manual_seed(0)
    module = nn.Linear(2, 1)
    config = LoopConfig(steps=4, batch_size=2, log_every=2, save_every=2)

    def batches(start: int) -> Any:
        yield from (torch.ones(2, 2) for _ in range(start, 4))

    train(module, lambda batch: {"loss": module(batch).square().mean()}, batches, config, folder)


def training_state(folder: Path) -> Reader:
    _train(folder)
    return _bytes_reader(folder / STATE_FILE, lambda: _train(folder))


def training_metrics(folder: Path) -> Reader:
    _train(folder)
    return _lines_reader(folder / METRICS_FILE, lambda: _train(folder))


def latents(folder: Path) -> Reader:
    file = folder / "a.latents.safetensors"
    cached_latents(file, "f", lambda: torch.zeros(4, 1, 2))
    return _bytes_reader(file, lambda: cached_latents(file, "f", lambda: torch.zeros(4, 1, 2)))


def rollouts(folder: Path) -> Reader:
    shapes = {"residual": (2, 3, 3), "residual_true": (2, 3, 3), "departure": (2, 3, 3)}
    names = [name for name in Rollouts.__dataclass_fields__ if name not in ("instances", "checkpoints")]
    Rollouts(("a", "b"), {}, **{name: np.ones(shapes.get(name, (2, 3))) for name in names}).save(folder / "r.json")
    return _json_reader(folder / "r.json", lambda: Rollouts.load(folder / "r.json").score)


def film(folder: Path) -> Reader:
    frame = np.zeros((4, 4, 3), np.uint8)
    Film(frame, [frame], [0.5]).save(folder / "a.npz")
    return _bytes_reader(folder / "a.npz", lambda: Film.load(folder / "a.npz"))


def reel(folder: Path) -> Reader:
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    tracks, curves = [Track("a", "executed", "red", frames, [0, 1], ["x", "y"])], [Curve("a", "red", [0.5, 1.0])]
    file = folder / "a.npz"
    Reel("title", "text", tracks, curves, "cost").save(file)
    with np.load(file) as stored:
        arrays = dict(stored)

    def packed(told: bytes) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays | {"told": np.array(told.decode("utf-8", "replace"))})
        return buffer.getvalue()

    def read() -> None:
        found, _ = Reel.load(file)
        found.films(), found.steps, found.highest

    return Reader(
        file, read, damaged_json(json.loads(str(arrays["told"]))).map(packed) | damaged_bytes(file.read_bytes())
    )


def trust(folder: Path) -> Reader:
    file = folder / "trust.json"
    calibrate([0.1, 0.2, 0.3, 0.9], [True, True, True, False], score="consistency", level=0.5, made_with={}).save(file)

    def read() -> None:
        found = Trust.load(file)
        str(found), found.tells, found.holds({found.score: 0.5})

    return _json_reader(file, read)


def latencies(folder: Path) -> Reader:
    findings = Findings(LATENCY, Options(folder))
    made_of = {"checkpoints": {"model": "a"}, "search": "cem", "device": "cpu"}
    file = folder / "latencies.json"
    file.write_text(json.dumps({"reacher/lewm": {"made_of": made_of, "rollout": [0.1, 0.2], "verifier": [0.1, 0.1]}}))
    return _json_reader(file, lambda: [latency.overhead(entry) for entry in latency.load(findings).values()])


def pool_spreads(folder: Path) -> Reader:
    findings = Findings(SPREAD, Options(folder))
    study = next(study for study in findings.studies if study.task == "reacher")
    kept = spread._recorded(findings, study) | {
        "pools": [{"instance": f"i{n}", "plan": 0, "goal": [1.0, 0.5], "consistency": [0.2, 0.1]} for n in range(2)]
    }
    file = spread.file_of(findings, study)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(kept))
    return _json_reader(file, lambda: spread.load(findings, study))


def probes(folder: Path) -> Reader:
    (folder / "probe.json").write_text(json.dumps({"position": 0.9, "angle": 0.5}))
    return _json_reader(folder / "probe.json", lambda: read_probes(folder / "probe.json"))


def _read_lerobot(folder: Path) -> None:
    list(read_lerobot(folder, 8).episodes)


def lerobot_info(folder: Path) -> Reader:
    made = write_lerobot(folder / "robot", (3, 4))
    return _json_reader(made / "meta" / "info.json", lambda: _read_lerobot(made))


def lerobot_table(folder: Path) -> Reader:
    made = write_lerobot(folder / "robot", (3, 4))
    return _bytes_reader(made / "data" / "chunk-000" / "file-000.parquet", lambda: _read_lerobot(made))


def lerobot_pictures(folder: Path) -> Reader:
    made = write_lerobot(folder / "robot", (3, 4), images=True)
    return _bytes_reader(made / "data" / "chunk-000" / "file-000.parquet", lambda: _read_lerobot(made))


def lerobot_video(folder: Path) -> Reader:
    made = write_lerobot(folder / "robot", (3, 4))
    file = next((made / "videos").rglob("*.mp4"))
    return _bytes_reader(file, lambda: _read_lerobot(made))


def lerobot_episodes(folder: Path) -> Reader:
    """Rows that say anything about where episodes are, in a table that is whole."""
    made = write_lerobot(folder / "robot", (3, 4))
    file = made / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    return Reader(file, lambda: _read_lerobot(made), _lying_table(pq.read_table(file).to_pylist()))


def _lying_table(rows: list[dict[str, Any]]) -> Any:
    def packed(text: bytes) -> bytes:
        buffer = io.BytesIO()
        with contextlib.suppress(pa.ArrowException, OverflowError, AttributeError, TypeError, UnicodeError):
            pq.write_table(pa.Table.from_pylist(json.loads(text)), buffer)
        return buffer.getvalue()

    return damaged_json(rows).map(packed)


def lance(folder: Path) -> Reader:
    """The same for a Lance table, as pylance gives it: a parquet file stands for it."""
    pixels = [base64.b64encode(png(np.zeros((8, 8, 3), np.uint8))).decode()] * 4
    rows = [{"episode_idx": n // 2, "step_idx": n % 2, "pixels": pixels[n], "action": [0.5, 1.0]} for n in range(4)]

    def dataset(path: str) -> Any:
        table = pq.read_table(path)
        if "pixels" in table.schema.names and "string" in str(table.schema.field("pixels").type):
            encoded = [None if text is None else base64.b64decode(text + "===") for text in table["pixels"].to_pylist()]
            table = table.set_column(table.schema.names.index("pixels"), "pixels", pa.array(encoded, pa.binary()))
        return SimpleNamespace(
            schema=table.schema,
            to_table=lambda columns: table.select(columns),
            take=lambda indices, columns: table.take(indices).select(columns),
        )

    file = folder / "a.lance"

    def read() -> None:
        with mock.patch.dict(sys.modules, {"lance": SimpleNamespace(dataset=dataset)}):
            list(read_lance(file, 8).episodes)

    return Reader(file, read, _lying_table(rows))


def _hub_cell(folder: Path) -> Path:
    (folder / "cell").mkdir()
    _model(folder / "cell")
    _verifier(folder / "cell")
    parts = {part: fingerprint(folder / "cell" / part) for part in ("model", "verifier")}
    described = {"library": "acid-planning", "task": "reacher", "model": "lewm", "parts": parts}
    (folder / "cell" / "config.json").write_text(json.dumps(described))
    (folder / "cell" / "lambda.json").write_text(json.dumps({"acid": 0.07, "reason": "a test"}))
    return folder / "cell"


def _read_hub(folder: Path) -> None:
    found = PretrainedCell.from_pretrained(folder)
    found.about, found.kind, found.lam, found.verifier  # noqa: B018


def hub_description(folder: Path) -> Reader:
    cell = _hub_cell(folder)
    return _json_reader(cell / "config.json", lambda: _read_hub(cell))


def hub_lambda(folder: Path) -> Reader:
    cell = _hub_cell(folder)
    return _json_reader(cell / "lambda.json", lambda: _read_hub(cell))


def _archive(folder: Path, name: str) -> Reader:
    """Pickled objects of the publisher's classes, as torch and Lightning save them; nothing in them may be executed."""
    from acid.integrations.published import load_published

    weights = torch.load(PUBLISHED.parent / "pldm" / "weights_epoch_2.pt", weights_only=True)
    content = {"state_dict": {f"model.{key}": value for key, value in weights.items()}, "epoch": 2}
    torch.save(content, folder / name)
    shells = pickle.dumps({"state_dict": Path("x"), "epoch": 2})
    evil = [
        b"cos\nsystem\n(S'touch %s'\ntR." % str(folder / "executed").encode(),
        b"cbuiltins\nexec\n(S'open(%r, \"w\")'\ntR." % str(folder / "executed").encode(),
        shells,
    ]

    def read() -> None:
        try:
            load_published(folder, action_scaler="identity")
        finally:
            if (folder / "executed").exists():
                os.kill(os.getpid(), signal.SIGABRT)  # a crash, which nothing takes for a refusal

    return Reader(folder / name, read, damaged_bytes((folder / name).read_bytes()) | st.sampled_from(evil))


def archive_ckpt(folder: Path) -> Reader:
    return _archive(folder, "pldm_weight.ckpt")


def archive_pth_tar(folder: Path) -> Reader:
    return _archive(folder, "pldm.pth.tar")


READERS: dict[str, Callable[[Path], Reader]] = {
    made.__name__: made
    for made in (
        *(checkpoint_of_a_verifier, checkpoint_of_a_model, weights, rows, instances, lambdas, split, dataset),
        *(dataset_that_lies, recon, dinowm, published_config, published_weights, training_state, training_metrics),
        *(latents, rollouts, film, reel, trust, latencies, pool_spreads, probes, nwm, packed, published_modules),
        *(lerobot_info, lerobot_table),
        *(lerobot_pictures, lerobot_video, lerobot_episodes, lance, hub_description, hub_lambda, archive_ckpt),
        archive_pth_tar,
    )
}
