"""What we ship works from a clean checkout: weights, instances, evaluation, plan, demo."""

import json

import numpy as np
import pytest

from acid import cli, tasks
from acid.errors import AcidError, DataError
from acid.evaluation import Condition, Protocol, halves, load_instances, read_rows, search_name
from acid.experiments import demo, planning
from acid.experiments.cell import Cell, cost, shipped
from acid.experiments.evaluate import evaluate, jobs
from acid.planning import CEM

TINY = CEM(samples=8, iterations=2, elites=2)


@pytest.fixture(scope="module")
def cell():
    return Cell("reacher", "lewm")


@pytest.fixture(params=[name for name in shipped() if name.endswith(("/lewm", "/pldm"))])
def any_cell(request):
    """Those of the paper's first table, one after another."""
    return Cell(*request.param.split("/"))


def test_files_are_small_enough_to_ship(any_cell):
    sizes = {path: path.stat().st_size for path in any_cell.root.rglob("*") if path.is_file()}
    assert sizes
    assert max(sizes.values()) < 5 * 2**20, max(sizes, key=sizes.__getitem__)


def test_verifier_and_model_agree_and_the_report_travels(any_cell):
    verifier = any_cell.verifier(any_cell.world_model())
    assert verifier.report is not None
    assert verifier.report.mean_r2 > 0.5


def test_every_condition_runs(any_cell, tmp_path):
    work = jobs(any_cell, planning.CONDITIONS, TINY, [0.2], Protocol(episodes=1), tmp_path)
    evaluate(work)
    assert {read_rows([job.file])[0]["condition"] for job in work} == set(planning.CONDITIONS)


def test_a_lambda_was_chosen(cell):
    assert cell.chosen_lambda() > 0


def test_the_decoder_draws_what_the_encoder_saw(cell):
    import torch

    task = tasks.make("reacher")
    frames = np.stack([task.reset(seed=seed)[0] for seed in range(4)])
    task.close()
    drawn = cell.decoder().pixels(cell.world_model().encode(torch.from_numpy(frames))).numpy()
    error = np.square(drawn.astype(float) - frames).mean()
    mean_picture = np.square(frames.mean(0) - frames).mean()
    assert error < 0.6 * mean_picture


def test_instances_know_whether_they_are_solved_and_splits_are_disjoint(cell):
    task = tasks.make("reacher")
    found = {s: load_instances(cell.instances_file(s), Protocol(episodes=200, split=s), "reacher") for s in halves_of()}
    for instances in found.values():
        assert len({i.id for i in instances.unsolved}) == 200
        assert all(task.success(i.start_state, i.goal_state) == i.solved for i in instances)
    episodes = {s: {i.episode for i in instances} for s, instances in found.items()}
    assert not episodes["select"] & episodes["test"]


def test_solved_starts_are_played_for_the_table_and_not_for_choosing_lambda(tmp_path):
    cube = Cell("cube", "pldm")
    solved = {}
    for split in halves_of():
        (work,) = jobs(cube, ["original"], TINY, [], Protocol(episodes=20, split=split), tmp_path)
        assert len([i for i in work.instances if not i.solved]) == 20
        solved[split] = [i for i in work.instances if i.solved]
    assert solved["test"]
    assert not solved["select"]


def halves_of():
    return tuple(halves(range(10), "reacher"))


def test_other_protocols_and_missing_files_are_refused(cell, tmp_path):
    with pytest.raises(DataError, match="drawn with seed 0, not 3"):
        load_instances(cell.instances_file("test"), Protocol(seed=3, episodes=1), "reacher")
    with pytest.raises(DataError, match="holds 480 instances, 9999 were asked for"):
        load_instances(cell.instances_file("test"), Protocol(episodes=9999), "reacher")
    with pytest.raises(DataError, match="no instances at"):
        load_instances(tmp_path / "none", Protocol(), "reacher")
    with pytest.raises(AcidError, match="did you mean 'reacher/lewm'"):
        Cell("reacher", "lewn")


def test_every_condition_runs_on_the_same_instances_and_resumes(cell, tmp_path):
    protocol = Protocol(episodes=2)
    names = ("original", "acid", "control", "policy", "random", "noop")
    work = jobs(cell, names, TINY, [0.5], protocol, tmp_path, batch=2)
    evaluate(work)
    rows = {job.condition.name: read_rows([job.file]) for job in work}
    assert len({tuple(row["instance"] for row in found) for found in rows.values()}) == 1
    assert rows["original"][0]["consistency"] is not None
    before = [job.file.read_bytes() for job in work]
    evaluate(work)
    assert [job.file.read_bytes() for job in work] == before  # timings included: nothing was run again


def test_lambda_zero_is_original_bit_for_bit(cell, tmp_path):
    protocol = Protocol(episodes=2)
    work = [
        *jobs(cell, ["original"], TINY, [], protocol, tmp_path),
        *jobs(cell, ["acid"], TINY, [0], protocol, tmp_path),
    ]
    evaluate(work)
    original, zero = (read_rows([job.file]) for job in work)
    assert [row["final_error"] for row in original] == [row["final_error"] for row in zero]


def test_the_control_punishes_action_size_and_only_measures_consistency(cell):
    terms = {term.name: term for term in cost("control", cell.verifier(cell.world_model()), 0.3).terms}
    assert list(terms) == ["goal", "action_norm", "consistency"]


def test_plan_shows_a_plan_and_draws_it(tmp_path, capsys):
    out = tmp_path / "plan.png"
    cli.main(["plan", "--samples", "8", "--iterations", "2", "--elites", "2", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "goal cost of the plan" in printed
    assert printed.count("mean ") == 5  # one line per block
    assert out.stat().st_size > 1000


@pytest.mark.slow
def test_the_demo_writes_a_table_pictures_and_films(tmp_path):
    text = demo.run("reacher", "lewm", 4, tmp_path, processes=1, search=TINY)
    assert "original" in text
    assert "acid" in text
    assert len(list(tmp_path.glob("*.png"))) >= 4
    assert len(list(tmp_path.glob("*.mp4"))) == demo.SHOWN
    condition = Condition("reacher", "lewm", "original", search_name(TINY))
    rows = condition.file(tmp_path / "rows", "test").read_text().splitlines()
    assert [json.loads(row)["condition"] for row in rows] == ["original"] * 4
