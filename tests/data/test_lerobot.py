"""LeRobot's datasets of version 3, written in that layout, become episodes of ours."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from acid.data import Episodes, import_episodes
from acid.data.lerobot import read_lerobot
from acid.errors import DataError
from acid.training import fit, recipe
from acid.verifier import Verifier

from .lerobot_files import actions_of, frames_of, write_lerobot

LENGTHS = (12, 9, 15)


@pytest.mark.parametrize("images", [False, True], ids=["videos", "images"])
def test_every_frame_belongs_to_its_step(tmp_path: Path, images: bool) -> None:
    folder = write_lerobot(tmp_path / "robot", LENGTHS, images=images)
    found = import_episodes(folder, tmp_path / "robot.h5", "lerobot", size=8)
    assert list(found.lengths) == list(LENGTHS)
    assert {"pixels", "proprio", "action", "next_done"} <= set(found.columns)
    for number, steps in enumerate(LENGTHS):
        episode = found.episode(number)
        assert episode["pixels"].shape == (steps, 8, 8, 3)
        wanted = frames_of(number, steps)[:, 0, 0, 0].astype(int)
        assert np.abs(episode["pixels"].mean((1, 2, 3)) - wanted).max() < 1.9  # frames are 4 apart
        np.testing.assert_array_equal(episode["action"], actions_of(number, steps))
        np.testing.assert_array_equal(episode["proprio"][:, 1], np.arange(steps))
    assert found.attributes["format"] == "lerobot"
    assert (found.attributes["fps"], found.attributes["camera"]) == ("10.0", "top")


def test_cameras_are_chosen_by_name(tmp_path: Path) -> None:
    folder = write_lerobot(tmp_path / "robot", (5, 6), cameras=("top", "wrist"))
    with pytest.raises(DataError, match=r"has the cameras top, wrist: choose with `acid import --camera top`"):
        import_episodes(folder, tmp_path / "robot.h5", "lerobot")
    with pytest.raises(DataError, match=r"no camera 'wrst'; did you mean 'wrist'\?"):
        import_episodes(folder, tmp_path / "robot.h5", "lerobot", camera="wrst")
    both = import_episodes(folder, tmp_path / "both.h5", "lerobot", size=8, camera="wrist,top")
    assert abs(both.episode(1)["pixels"][0].mean() - frames_of(1, 6, 1)[0, 0, 0, 0]) < 2
    assert abs(both.episode(1)["pixels_top"][0].mean() - frames_of(1, 6, 0)[0, 0, 0, 0]) < 2
    with pytest.raises(DataError, match="the format 'hdf5' has no cameras to choose from; leave camera 'top' out"):
        import_episodes(tmp_path / "both.h5", tmp_path / "copy.h5", "hdf5", camera="top")


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "meta" / "info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


class TestBrokenDatasets:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return write_lerobot(tmp_path / "robot", (5, 6))

    def read(self, folder: Path) -> None:
        list(read_lerobot(folder, 8).episodes)

    def test_another_version(self, folder: Path) -> None:
        edit(folder, codebase_version="v2.1")
        with pytest.raises(DataError, match=r"of version v2\.1, and version 3 is read: convert it"):
            self.read(folder)

    def test_no_dataset(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"has no meta/info\.json"):
            self.read(tmp_path)

    @pytest.mark.parametrize("text", ["{", "[]", '{"codebase_version": "v3.0"}'])
    def test_a_damaged_description(self, folder: Path, text: str) -> None:
        (folder / "meta" / "info.json").write_text(text)
        with pytest.raises(DataError, match=r"info\.json (is damaged|is not valid JSON|must hold a JSON object)"):
            self.read(folder)

    def test_no_action_no_camera_no_path(self, folder: Path) -> None:
        features = json.loads((folder / "meta" / "info.json").read_text())["features"]
        edit(folder, data_path="data/{episode_chunk}.parquet")
        with pytest.raises(DataError, match=r"data_path in .* names no file of the dataset"):
            self.read(folder)
        edit(folder, features={key: value for key, value in features.items() if "images" not in key})
        with pytest.raises(DataError, match="has no camera"):
            self.read(folder)
        del features["action"]
        edit(folder, features=features)
        with pytest.raises(DataError, match="has no feature 'action'"):
            self.read(folder)

    @pytest.mark.parametrize(
        "place", ["/etc/passwd", "../{file_index}", "{file_index:999999999d}", "{file_index.real}", "a\0b"]
    )
    def test_a_description_names_no_file_outside(self, folder: Path, place: str) -> None:
        edit(folder, data_path=place)
        with pytest.raises(DataError, match="names no file of the dataset"):
            self.read(folder)

    @pytest.mark.parametrize("name", ["length", "data/file_index", "videos/observation.images.top/from_timestamp"])
    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, 1e300])
    def test_numbers_of_an_episode_that_make_no_sense(self, folder: Path, name: str, value: float) -> None:
        table = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
        rows = [row | {name: value} for row in parquet.read_table(table).to_pylist()]
        parquet.write_table(parquet.read_table(table).from_pylist(rows), table)
        with pytest.raises(DataError, match=f"the table of episodes of .* gives .* as '{name}'"):
            self.read(folder)

    @pytest.mark.parametrize("name", ["data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"])
    def test_truncated_tables(self, folder: Path, name: str) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match="cannot be read, it may be truncated"):
            self.read(folder)

    def test_missing_files(self, folder: Path) -> None:
        next((folder / "videos").rglob("*.mp4")).unlink()
        with pytest.raises(DataError, match=r"\.mp4 is missing"):
            self.read(folder)
        next((folder / "data").rglob("*.parquet")).unlink()
        with pytest.raises(DataError, match=r"\.parquet is missing"):
            self.read(folder)

    def test_a_broken_video(self, folder: Path) -> None:
        video = next((folder / "videos").rglob("*.mp4"))
        video.write_bytes(b"no video")
        with pytest.raises(DataError, match="cannot be decoded"):
            self.read(folder)

    def test_steps_without_frames(self, folder: Path) -> None:
        table = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
        rows = parquet.read_table(table).to_pylist()
        rows[1]["videos/observation.images.top/from_timestamp"] = 0.8
        parquet.write_table(parquet.read_table(table).from_pylist(rows), table)
        with pytest.raises(DataError, match=r"episode 1 of .* has 6 steps but 3 frames of camera 'top'"):
            self.read(folder)

    def test_lost_steps(self, folder: Path) -> None:
        table = folder / "data" / "chunk-000" / "file-000.parquet"
        parquet.write_table(parquet.read_table(table).slice(0, 9), table)
        with pytest.raises(DataError, match=r"episode 1 of .* should have 6 steps, but .* holds 4 of them"):
            self.read(folder)


def test_one_command_fits_a_verifier_to_a_folder(tmp_path: Path) -> None:
    folder = write_lerobot(tmp_path / "robot", (30,) * 6)
    for part in ("model", "verifier"):
        found = recipe(part, "lewm")
        short = replace(found, loop=replace(found.loop, steps=2, batch_size=8))
        made = fit(short, folder, tmp_path / "cell", device="cpu")
    assert Verifier.load(made).scaler.env_size == 2
    imported = Episodes(tmp_path / "robot.64px.h5")
    assert imported.shape("pixels") == (64, 64, 3)
