"""The shipped Rope and Granular cells work from a clean checkout: weights, instances, every condition, pictures."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from acid import tasks
from acid.errors import AcidError
from acid.evaluation import load_instances, read_rows
from acid.experiments.cell import Cell, cost, planner
from acid.experiments.deformable import CONDITIONS, TASKS
from acid.experiments.evaluate import evaluate, jobs
from acid.experiments.show import execute_plans, sheet_rows
from acid.planning import CEM

TINY = CEM(samples=8, iterations=1, elites=2)


@pytest.fixture(scope="module", params=TASKS)
def cell(request):
    return Cell(request.param, "dinowm")


def test_files_are_small_enough_to_ship(cell):
    assert max(path.stat().st_size for path in cell.root.rglob("*") if path.is_file()) < 5 * 2**20


def test_every_condition_runs_on_the_same_instances(cell, tmp_path):
    protocol = cell.setup.protocol(episodes=1)
    work = jobs(cell, CONDITIONS, TINY, [1.0], protocol, tmp_path)
    evaluate(work)
    rows = {job.condition.name: read_rows([job.file])[0] for job in work}
    assert rows.keys() == set(CONDITIONS)
    assert len({row["instance"] for row in rows.values()}) == 1
    for name, row in rows.items():
        assert len(row["errors"]) == row["steps"] == protocol.budget
        assert len(row["imagined_errors"]) == (0 if name in ("noop", "random") else protocol.budget)
    assert rows["noop"]["misses"] == protocol.budget
    assert rows["noop"]["final_error"] == pytest.approx(rows["noop"]["initial_error"])


def test_a_cell_that_looks_farther_has_rows_of_its_own_and_the_same_lambda(cell, tmp_path):
    far = replace(cell, horizon=2)
    (near_work,), (far_work,) = (
        jobs(c, ["original"], TINY, [], c.setup.protocol(episodes=1), tmp_path) for c in (cell, far)
    )
    assert far_work.file.stem == f"{near_work.file.stem}-h2"
    assert far.choice_file == cell.choice_file
    evaluate([far_work])
    (row,) = read_rows([far_work.file])
    assert (row["plans"], row["steps"], len(row["imagined_errors"])) == (2, 4, 4)


def test_clipped_plans_stay_on_the_table(cell):
    instance = load_instances(cell.instances_file("test"), cell.setup.protocol(episodes=1), cell.task)[0]
    task = tasks.make(cell.task, size=cell.world_model().observation_size)
    shown = execute_plans(task, cell, planner(cell, "acid-clipped", CEM(8, 1, 2, std_init=9.0), 1.0), instance, 0)
    low, high = task.action_bounds
    task.close()
    actions = shown.plans[0].env_actions
    assert actions is not None
    assert (actions >= torch.from_numpy(low)).all()
    assert (actions <= torch.from_numpy(high)).all()
    imagined, executed = sheet_rows("acid", shown)
    assert imagined.frames.shape == executed.frames.shape


def test_the_reward_for_change_prefers_a_push_that_is_imagined_to_do_more(cell):
    model = cell.world_model()
    terms = {term.name: term for term in cost("change", cell.verifier(model), 1.0).terms}
    assert list(terms) == ["goal", "change", "consistency"]


def test_the_readout_sees_the_particles(cell):
    instance = load_instances(cell.instances_file("test"), cell.setup.protocol(episodes=1), cell.task)[0]
    model, task = cell.world_model(), tasks.make(cell.task, size=cell.world_model().observation_size)
    task.set_state(instance.start_state)
    readout = cell.readout()
    assert readout is not None
    points = readout(model.encode(torch.from_numpy(task.render())[None]))[0].numpy()
    middle = np.tile(task.pose(instance.start_state).mean(0), (1, 1))
    assert task.pose_error(points, instance.start_state) < 0.5 * task.pose_error(middle, instance.start_state)
    task.close()


def test_a_policy_that_must_know_how_far_its_goal_is_says_so(cell, tmp_path):
    with pytest.raises(AcidError, match="told how far away its goal is"):
        evaluate(jobs(cell, ["policy"], TINY, [], cell.setup.protocol(episodes=1), tmp_path))
