"""Several processes train as one does: the same losses and gradients, one set of files, any number on resuming."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import trained_together
from torch import nn

from acid import distributed
from acid.errors import AcidError
from acid.nn.batch_norm import BatchNorm1d, BatchNorm2d

TESTS = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def torchrun(processes: int, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    told = subprocess.run([*TORCHRUN, str(processes), *map(str, command)], capture_output=True, text=True)
    assert not check or told.returncode == 0, told.stderr
    return told


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("together") / "found.pt"
    torchrun(2, TESTS / "trained_together.py", out)
    return torch.load(out, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", trained_together.CASES)
def test_two_processes_have_the_losses_and_gradients_of_one(case: str, together: dict[str, Any]):
    alone = trained_together.one_step(case)
    assert together[case].keys() == alone.keys()
    assert len(alone) > 30
    largest = max(float(value.abs().max()) for name, value in alone.items() if name.startswith("gradient"))
    for name, value in alone.items():
        unit = largest if name.startswith("gradient") else 1.0
        assert float((together[case][name] - value).abs().max()) <= 1e-5 * max(1.0, unit), name


@pytest.mark.slow
def test_what_would_be_of_one_share_is_refused(together: dict[str, Any]):
    norm, uneven = together["mistakes"]
    assert norm.startswith("the layer '1' is a BatchNorm1d, which would normalise by one process's part of a batch")
    assert uneven == "a batch of 13 cannot be shared equally by 2 processes; choose a multiple of 2"


@pytest.mark.parametrize("case", ["Le-WM as published", "PLDM as published"])
def test_frames_encoded_in_parts_give_the_same_gradients(case: str):
    whole, parts = trained_together.one_step(case), trained_together.one_step(case, micro_batch=5)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-5)


def test_an_encoder_that_normalises_by_the_batch_is_not_cut():
    with pytest.raises(AcidError, match="normalises by the frames of a whole batch: leave out micro_batch"):
        trained_together.one_step("Le-WM as shipped", micro_batch=4)


@pytest.mark.parametrize(("ours", "shape"), [(BatchNorm1d, (12, 3)), (BatchNorm2d, (4, 3, 5, 5))])
def test_alone_our_norms_are_those_of_torch(ours: type[nn.Module], shape: tuple[int, ...]):
    theirs = {BatchNorm1d: nn.BatchNorm1d, BatchNorm2d: nn.BatchNorm2d}[ours](3)  # type: ignore[index]
    own, x = ours(3), torch.randn(shape)
    assert torch.equal(own(x), theirs(x))
    assert all(map(torch.equal, own.state_dict().values(), theirs.state_dict().values()))


def test_a_process_that_torchrun_started_does_not_train_by_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    with pytest.raises(AcidError, match=r"train inside `with acid\.distributed\.group"):
        distributed.check_joined()


@pytest.mark.slow
def test_the_command_runs_under_torchrun_and_goes_on_with_another_number_of_processes(tmp_path: Path):
    sys.path.insert(0, str(TESTS / "training"))
    import training_toys as toys

    data = toys.blobs(tmp_path / "blobs.h5")
    options = ["-m", "acid.cli", "train", "model", "lewm", "--data", str(data), "--task", "reacher", "--steps", "4"]
    options += ["--batch-size", "8", "--loop.log-every", "1", "--loop.save-every", "2", "--device", "cpu"]
    cells = {1: tmp_path / "one", 2: tmp_path / "two"}
    for processes, cell in cells.items():
        told = torchrun(processes, *options, "--out", cell).stdout
        assert told.count(f"wrote {cell / 'model'}") == 1
    losses = [
        [json.loads(line)["loss"] for line in (cell / "model" / "run" / "metrics.jsonl").read_text().splitlines()]
        for cell in cells.values()
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)  # Adam makes of rounding what it likes
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)
    (cells[2] / "model" / "config.json").unlink()
    state = torch.load(cells[2] / "model" / "run" / "state.pt", weights_only=True)
    assert state["step"] == 4
    torchrun(1, *options, "--out", cells[2])  # goes on from the end: nothing is trained, but all is saved again
    assert (cells[2] / "model" / "config.json").exists()
