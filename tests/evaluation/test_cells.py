"""Cells: the user's files come first, the package is never written, and parts of other cells are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acid import models
from acid.data import Episodes, EpisodeWriter, partition
from acid.errors import AcidError, CheckpointError, DataError, PlanningError, UnknownNameError
from acid.evaluation import (
    Bench,
    Cell,
    CellContender,
    Protocol,
    SearchSpec,
    condition,
    evaluate,
    save_instances,
    shipped,
)
from acid.evaluation.cells import ASSETS, may_share
from acid.evaluation.kits import Kit
from acid.planning import CEM, Planner, PolicyProposal, acid_cost
from acid.tasks.navigation import Navigation
from acid.types import Problem
from acid.verifier import Policy, Verifier

SPEC = SearchSpec("cem", 6, 2, 2, horizon=2)
PROTOCOL = Protocol(episodes=2)


def bench(cell: Cell, protocol: Protocol = PROTOCOL) -> Bench:
    return Bench(cell, SPEC, protocol)


def copied(task: str, model: str, to: Path) -> Path:
    return shutil.copytree(ASSETS / task / model, to)


def change_metadata(folder: Path, **changes) -> None:
    content = json.loads((folder / "config.json").read_text())
    metadata = {**content["metadata"], **changes}
    content["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(content))


def digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def test_what_is_shipped_has_a_name():
    assert "reacher/lewm" in shipped()
    for name in shipped():
        cell = Cell(*name.split("/"))
        assert cell.root == ASSETS / name
        assert cell.has("verifier")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reacher", "lewn"), "no weights are shipped for 'reacher/lewn'; pass --folder; did you mean 'reacher/lewm'"),
        (("cup", "lewm"), "no weights are shipped for 'cup/lewm'; pass --folder; did you mean"),
        (("reacher", "../lewm", Path("x")), r"cannot be part of a file"),
    ],
)
def test_cells_that_are_not_there_are_refused(arguments, message):
    with pytest.raises(AcidError, match=message):
        Cell(*arguments)


def test_an_unknown_task_of_a_users_cell_is_named():
    with pytest.raises(UnknownNameError, match="unknown task 'recher'; did you mean 'reacher'"):
        _ = Cell("recher", "lewm", Path("x")).task_class


def test_instances_are_looked_for_in_the_users_folders_first(tmp_path: Path):
    results, folder = tmp_path / "results", tmp_path / "cell"
    own = Cell("reacher", "lewm", folder, results)
    packaged = own.instances(PROTOCOL)
    assert [i.id for i in packaged] == [i.id for i in Cell("reacher", "lewm", user=results).instances(PROTOCOL)]
    everything = Cell("reacher", "lewm").instances(Protocol(episodes=6))
    for where, first in ((results / "reacher", 2), (folder, 4)):
        save_instances(where / "instances-test.jsonl", everything.__class__(everything[first:]), PROTOCOL, "reacher")
        assert own.instances(PROTOCOL)[0].id == everything[first].id
    assert Cell("reacher", "lewm", user=results).instances(PROTOCOL)[0].id == everything[2].id


def test_solved_starts_are_played_for_the_table_and_not_for_choosing_lambda():
    cube = Cell("cube", "pldm")
    found = {split: cube.instances(Protocol(episodes=20, split=split)) for split in ("test", "select")}
    assert [len([i for i in some if not i.solved]) for some in found.values()] == [20, 20]
    assert any(i.solved for i in found["test"])
    assert not any(i.solved for i in found["select"])


def test_problems_to_confirm_with_come_from_another_dataset(tmp_path: Path):
    """Collected episodes are the same for the same seed, however many they are."""
    folder = copied("reacher", "lewm", tmp_path / "cell")
    cell, protocol = Cell("reacher", "lewm", folder), Protocol(episodes=8, split="confirm")
    for seed, trained in ((0, True), (1, False)):
        data = tmp_path / f"{seed}.h5"
        states = np.cumsum(np.random.default_rng(seed).normal(size=(4, 40, 6)), 1)
        collection = json.dumps({"task": "reacher", "episodes": 4, "seed": seed, "size": 8})
        with EpisodeWriter(data, attributes={"collection": collection}) as writer:
            for walk in states:
                writer.write({"action": np.zeros((40, 2), np.float32), "state": walk})
        if trained:
            with pytest.raises(DataError, match="the split 'confirm' needs new ones"):
                cell.draw(data, protocol)
        else:
            drawn = cell.draw(data, protocol)
            assert {instance.episode for instance in drawn} == {0, 1, 2, 3}  # no half is kept for something else
            assert [i.id for i in cell.instances(protocol)] == [i.id for i in drawn.unsolved]


@pytest.mark.parametrize(
    ("ours", "trained_on", "known", "shared"),
    [
        (
            {"format": "recon", "files": "abc", "size": "64"},
            {"format": "recon", "files": "abc", "size": "32"},
            "x",
            True,
        ),
        ({"files": "abc"}, {"files": "def"}, "x", False),
        ({}, {}, "x", False),  # nobody says where from, but the contents are known to differ
        ({}, {}, None, True),
        ({"collection": json.dumps({"task": "cube", "seed": 1, "episodes": 9})}, {}, "x", False),
    ],
)
def test_datasets_share_episodes_as_far_as_they_tell(tmp_path: Path, ours, trained_on, known, shared: bool):
    with EpisodeWriter(tmp_path / "data.h5", attributes=ours) as writer:
        writer.write({"action": np.zeros((3, 2), np.float32)})
    metadata = {"data": trained_on, "partition": {"fingerprint": known}}
    assert may_share(metadata, Episodes(tmp_path / "data.h5")) is shared


def test_a_lambda_of_the_users_own_comes_first_and_the_package_stays(tmp_path: Path):
    cell, acid = Cell("reacher", "lewm", user=tmp_path), condition("acid")
    shipped_lambdas = dict(cell.lambdas)
    path = cell.choose_lambdas({"acid": 9.0}, "because")
    assert path == tmp_path / "lambda-lewm.json"
    assert cell.lambdas == {**shipped_lambdas, "acid": 9.0}  # the others are kept
    assert cell.chosen_lambda(acid) == cell.chosen_lambda(condition("acid-clipped")) == 9.0
    assert cell.chosen_lambda(condition("original")) is None
    assert Cell("pusht", "lewm", user=tmp_path).chosen_lambda(acid) == 9.0  # one λ serves a model on all its tasks
    assert Cell("reacher", "pldm", user=tmp_path).chosen_lambda(acid) == shipped_lambdas["acid"]
    assert Cell("reacher", "lewm").chosen_lambda(acid) == shipped_lambdas["acid"]


def test_a_task_may_have_a_lambda_of_its_own(tmp_path: Path):
    rope = Cell("rope", "dinowm", user=tmp_path)
    before = rope.lambdas["acid"]
    assert rope.choose_lambdas({"acid": 9.0}, "because") == tmp_path / "rope" / "dinowm" / "lambda.json"
    assert Cell("granular", "dinowm", user=tmp_path).lambdas["acid"] != 9.0
    assert Cell("rope", "dinowm").lambdas["acid"] == before


def test_a_users_cell_has_only_its_own_lambda(tmp_path: Path):
    cell = Cell("reacher", "lewm", copied("reacher", "lewm", tmp_path / "cell"), tmp_path)
    assert cell.lambdas == {}
    with pytest.raises(AcidError, match=r"no λ of 'acid' was chosen.*`acid eval reacher --model lewm --folder .*/cell"):
        cell.chosen_lambda(condition("acid"))
    assert cell.choose_lambdas({"acid": 2.0}, "because") == tmp_path / "cell" / "lambda.json"
    assert json.loads((tmp_path / "cell" / "lambda.json").read_text()) == {"acid": 2.0, "reason": "because"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not valid JSON"),
        ("[1]", "must hold a JSON object"),
        ('{"acid": "much"}', "does not hold a λ by condition"),
        ('{"acid": null}', "does not hold a λ by condition"),
        ('{"acid": NaN}', "holds a λ that is negative or not finite"),
        ('{"acid": -1}', "holds a λ that is negative or not finite"),
        ('{"acdi": 1}', "holds a λ of the unknown condition 'acdi'; did you mean 'acid'"),
    ],
)
def test_bad_lambda_files_are_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "lambda-lewm.json").write_text(text)
    with pytest.raises(DataError, match=rf"lambda-lewm\.json {message}.*; remove it and choose again"):
        _ = Cell("reacher", "lewm", user=tmp_path).lambdas


def test_a_cell_of_another_task_or_model_is_refused():
    with pytest.raises(CheckpointError, match="pusht/lewm/model was made for the task 'pusht', not for 'reacher'"):
        _ = bench(Cell("reacher", "lewm", ASSETS / "pusht" / "lewm")).model
    with pytest.raises(CheckpointError, match="lewm/model was made for the model 'lewm', not for 'pldm'"):
        _ = bench(Cell("reacher", "pldm", ASSETS / "reacher" / "lewm")).model
    with pytest.raises(CheckpointError, match="was made for the task 'pusht'"):  # before a missing λ is told
        Cell("reacher", "lewm", ASSETS / "pusht" / "lewm").chosen_lambda(condition("acid"))


@pytest.mark.parametrize("part", ["verifier", "policy", "decoder"])
def test_every_part_must_be_of_the_cell(tmp_path: Path, part: str):
    folder = copied("reacher", "lewm", tmp_path / "cell")
    change_metadata(folder / part, model="pldm")
    mixed = bench(Cell("reacher", "lewm", folder))
    with pytest.raises(CheckpointError, match=f"{part} was made for the model 'pldm', not for 'lewm'"):
        getattr(mixed, {"verifier": "kit"}.get(part, part))


def test_parts_must_have_been_trained_on_those_beside_them(tmp_path: Path):
    folder = copied("reacher", "lewm", tmp_path / "cell")
    change_metadata(folder / "verifier", built_on={"model": "0" * 12})
    with pytest.raises(CheckpointError, match="verifier was trained on another model than the one beside it"):
        _ = bench(Cell("reacher", "lewm", folder)).kit
    for name in shipped():
        for part in Cell(*name.split("/")).root.iterdir():
            if part.is_dir():
                Cell(*name.split("/")).stored(part.name)  # those that are shipped were


def test_a_planner_refuses_what_was_fitted_to_another_models_latents(tmp_path: Path):
    cube = {name: ASSETS / "cube" / name for name in ("lewm", "pldm")}  # latents of one size, the same actions
    model, verifier = models.load(cube["lewm"] / "model"), Verifier.load(cube["pldm"] / "verifier")
    search, told = CEM(6, 2, 2), r"was fitted to latents of the world model [0-9a-f]{12}, not of this one, [0-9a-f]{12}"

    def planner(verifier: Verifier) -> Planner:
        return Planner(model, acid_cost(verifier), search, horizon=2)

    verifier.save(tmp_path)
    for wrong in (verifier, Verifier.load(tmp_path)):
        with pytest.raises(PlanningError, match=f"the verifier {told}: fit it again"):
            planner(wrong)
    with pytest.raises(PlanningError, match=f"the verifier {told}"):
        Kit(model, verifier, {})
    verifier.fitted_to = None
    planner(verifier)
    usual = planner(Verifier.load(cube["lewm"] / "verifier"))
    problem = Problem(torch.zeros(1, 1, verifier.config.latent_size), torch.ones(1, 1, verifier.config.latent_size))
    usual.solve(problem, initial=PolicyProposal(Policy.load(cube["lewm"] / "policy")))
    with pytest.raises(PlanningError, match=f"the policy {told}"):
        usual.solve(problem, initial=PolicyProposal(Policy.load(cube["pldm"] / "policy")))


def test_a_record_of_what_a_part_was_built_on_must_be_one(tmp_path: Path):
    copied("reacher", "lewm", tmp_path / "cell")
    change_metadata(tmp_path / "cell" / "verifier", built_on=["04d6978f40d2"])
    with pytest.raises(CheckpointError, match="'built_on' of a 'verifier' checkpoint must hold fingerprints"):
        Verifier.load(tmp_path / "cell" / "verifier")


def test_another_frameskip_is_refused(tmp_path: Path):
    folder = copied("reacher", "lewm", tmp_path / "cell")
    content = json.loads((folder / "model" / "config.json").read_text())
    frameskip = content["scaler"]["frameskip"]
    content["scaler"] = {"mean": content["scaler"]["mean"] * frameskip, "std": content["scaler"]["std"] * frameskip}
    content["scaler"]["frameskip"] = 1
    del content["digest"]
    (folder / "model" / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="takes 1 environment steps per model step, the task 'reacher' 5"):
        _ = bench(Cell("reacher", "lewm", folder)).model


def test_a_readout_must_be_of_the_cell(tmp_path: Path):
    (tmp_path / "cell").mkdir()
    shutil.copytree(ASSETS / "rope" / "dinowm" / "readout", tmp_path / "cell" / "readout")
    with pytest.raises(CheckpointError, match="readout was made for the task 'rope', not for 'granular'"):
        _ = bench(Cell("granular", "dinowm", tmp_path / "cell")).readout


def test_actions_of_another_size_are_refused(tmp_path: Path):
    folder = copied("cube", "lewm", tmp_path / "cell")
    change_metadata(folder / "model", task=None)
    size = len(json.loads((folder / "model" / "config.json").read_text())["scaler"]["mean"])
    with pytest.raises(CheckpointError, match=f"trained on actions of size {size}, but the task 'reacher' takes 2"):
        _ = bench(Cell("reacher", "lewm", folder)).model


def test_a_verifier_of_other_data_is_refused_with_the_cells_name(tmp_path: Path):
    folder = copied("reacher", "lewm", tmp_path / "cell")
    content = json.loads((folder / "verifier" / "config.json").read_text())
    content["scaler"]["mean"][0] += 1.0
    del content["digest"]
    (folder / "verifier" / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="cell: the verifier was fitted with other action statistics"):
        _ = bench(Cell("reacher", "lewm", folder)).kit


def test_missing_parts_are_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no checkpoint folder at .*model"):
        _ = bench(Cell("reacher", "lewm", tmp_path)).model


def test_what_a_bench_can_draw(tmp_path: Path, navigation_folder: Path):
    frames = torch.zeros(2, 32, 32, 3, dtype=torch.uint8)
    tokens = Bench(Cell("navigation", "nwm", navigation_folder), SPEC, PROTOCOL)
    assert tokens.decoder is not None  # a tokenizer draws by itself
    drawn = tokens.decoder(tokens.model.encode(frames))
    assert (drawn.shape, drawn.dtype) == ((2, 32, 32, 3), torch.uint8)
    folder = copied("reacher", "lewm", tmp_path / "cell")
    shutil.rmtree(folder / "decoder")
    assert bench(Cell("reacher", "lewm", folder)).decoder is None
    assert bench(Cell("reacher", "lewm", folder)).readout is None


def test_instances_are_drawn_from_episodes_that_the_model_never_saw(navigation_folder: Path, drives: Path):
    held_out = set(partition(Episodes(drives)).held_out.tolist())
    cell = Cell("navigation", "nwm", navigation_folder)
    episodes = {}
    for split, count in (("test", 6), ("select", 3)):
        instances = cell.instances(Protocol.of(Navigation.setup, episodes=count, split=split))
        episodes[split] = {i.episode for i in instances}
        assert episodes[split] <= held_out
        assert {(len(i.seen), len(i.path)) for i in instances if i.path is not None} == {(4, 8)}
    assert episodes["test"].isdisjoint(episodes["select"])


def test_a_dataset_that_the_model_was_not_trained_on_is_refused(navigation_folder: Path, tmp_path: Path):
    with EpisodeWriter(tmp_path / "other.h5") as writer:
        for episode in range(20):
            rng = np.random.default_rng(episode)
            writer.write({"state": rng.normal(size=(20, 4)), "action": rng.normal(size=(20, 2)).astype(np.float32)})
    cell = Cell("navigation", "nwm", navigation_folder, tmp_path)
    with pytest.raises(DataError, match=r"was trained with fingerprint .* use the dataset that it was trained on"):
        cell.draw(tmp_path / "other.h5", Protocol.of(Navigation.setup, episodes=2))


def test_nothing_is_ever_written_into_the_package(navigation_folder: Path, drives: Path, tmp_path: Path):
    from acid.views.card import write_card

    before = digest(ASSETS)
    with pytest.raises(DataError, match=r"held_out 0\.5, not 0\.2"):  # the shipped weights were trained on other drives
        Cell("navigation", "nwm", user=tmp_path).draw(drives, Protocol.of(Navigation.setup, episodes=2))
    Cell("navigation", "nwm", navigation_folder, tmp_path).draw(drives, Protocol.of(Navigation.setup, episodes=6))
    cell = Cell("reacher", "lewm", user=tmp_path)
    cell.choose_lambdas({"acid": 0.3, "control": 0.3}, "because")
    for name in ("lewm", "pldm"):
        write_card(Cell("reacher", name, user=tmp_path), out=tmp_path / "card")
    contenders = {name: CellContender(cell, name, None, SPEC) for name in ("original", "noop")}
    evaluate("reacher", contenders, episodes=1, budget=10, results=tmp_path)
    assert digest(ASSETS) == before
    assert (tmp_path / "reacher" / "lewm" / "test").is_dir()


def test_fingerprints_are_of_the_parts_that_a_condition_needs():
    found = bench(Cell("reacher", "lewm"))
    assert found.provenance(condition("noop")).checkpoints == {}
    assert found.provenance(condition("acid")).checkpoints.keys() == {"model", "verifier"}
    assert found.provenance(condition("policy")).checkpoints.keys() == {"model", "policy"}
    assert len(set(found.provenance(condition("acid")).checkpoints.values())) == 2


def test_the_cost_of_the_control_only_measures_consistency():
    found = bench(Cell("reacher", "lewm"))
    assert [t.name for t in found.cost(condition("control"), 0.3).terms] == ["goal", "action_norm", "consistency"]
    assert [t.name for t in found.cost(condition("control"), 0.3).active] == ["goal", "action_norm"]


def test_a_bench_may_plan_with_another_protocol_than_the_tasks(tmp_path: Path):
    near = bench(Cell("reacher", "lewm"), replace(PROTOCOL, goal_offset=10))
    condition("policy").build(near, None)
    assert near.protocol.steps_left(near.protocol.budget, near.task.frameskip) == 2  # of five environment steps each
