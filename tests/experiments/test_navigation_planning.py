"""Cases of navigation planned in one pool: what each condition chooses, and what comes of it in the simulator."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from acid.data.poses import denormalise, displacements, normalise
from acid.errors import CheckpointError
from acid.evaluation import read_rows
from acid.evaluation.path_cases import PathCase, load_cases
from acid.experiments.cell import Cell
from acid.experiments.navigation import NavigationTable
from acid.experiments.navigation_planning import (
    SCHEMES,
    Asked,
    NavigationJob,
    Parts,
    Seen,
    forward_step,
    judge,
    outcome,
    path_errors,
    path_of,
    total,
)
from acid.planning import CEM, draw_pool
from acid.tasks.navigation import Navigation
from acid.types import Trajectory

ASKED = (Asked("original"), Asked("acid", 1.0), Asked("acid", 0.0), Asked("prior"), Asked("chance"), Asked("best"))


@pytest.fixture
def table(small_cell, tmp_path: Path) -> NavigationTable:
    made = NavigationTable(tmp_path / "results", 3, small_cell.cell.folder, small_cell.data, select=2)
    made._draw_cases()
    return made


@pytest.fixture
def cases(table: NavigationTable) -> list[PathCase]:
    return load_cases(table.cell.cases_file("test"), table._protocol("test"), "navigation")


def job(table: NavigationTable, *asked: Asked, iterations: int = 1) -> NavigationJob:
    search = CEM(samples=6, iterations=iterations, elites=2)
    return NavigationJob(table.cell, "arc", search, asked, table._protocol("test"), table.results)


def without_time(rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "plan_seconds"} for row in rows]


def test_the_driven_path_has_no_error_and_is_driven_again(cases: list[PathCase]) -> None:
    with closing(Navigation(size=32, worlds=1)) as task:
        for case in cases:
            driven = torch.from_numpy(normalise(displacements(case.driven)))
            found = outcome(driven, case, task)
            assert found["ate"] == pytest.approx(0, abs=1e-6)
            assert found["rpe"] == pytest.approx(0, abs=1e-6)
            assert found["final_error"] == pytest.approx(0, abs=1e-4)
            still = outcome(torch.from_numpy(normalise(np.zeros((8, 3)))), case, task)
            distance = np.linalg.norm(case.future[-1, :2] - case.past[-1, :2])
            assert still["final_error"] == pytest.approx(distance)
            assert still["ate"] == pytest.approx(4 * still["ate_metres"])


def test_a_case_is_seen_as_it_was_recorded(table: NavigationTable, cases: list[PathCase]) -> None:
    from acid.data import Episodes

    episodes = Episodes(table.data)
    with closing(Navigation(size=32, worlds=1)) as task:
        for case in cases:
            seen = Seen.of(case, task)
            row = int(episodes.offsets[case.episode]) + case.step
            recorded = torch.from_numpy(episodes.read("pixels", np.arange(row - 3, row + 9)))
            assert torch.equal(torch.cat([seen.context[0], seen.future[0]]), recorded)


@pytest.mark.parametrize("name", ["arc", "line"])
def test_candidates_lie_around_going_on_at_the_current_speed(name: str, cases: list[PathCase]) -> None:
    scheme, case = SCHEMES[name], cases[0]
    middle = scheme.around(forward_step(case))
    steps = denormalise(scheme.parametrisation(middle[:, 0], 8)[0].double().numpy())
    np.testing.assert_allclose(steps, np.tile([forward_step(case), 0, 0], (8, 1)), atol=1e-6)


def test_conditions_choose_from_one_pool_by_their_own_cost(table: NavigationTable, cases: list[PathCase]) -> None:
    parts, case = Parts.load(table.cell), cases[0]
    with closing(Navigation(size=32, worlds=1)) as task:
        problem = Seen.of(case, task).problem(parts.model)
    search = CEM(samples=6, iterations=1, elites=2)
    planner = parts.planner(parts.cost("acid", 1.0), search, SCHEMES["arc"])
    middle = SCHEMES["arc"].around(forward_step(case))
    pool = draw_pool(planner, problem, seed=[3], initial=middle)
    costs = judge(parts, pool, case)
    alone = planner.solve(problem, seed=[3], initial=middle)
    chosen = pool.choose(total(Asked("acid", 1.0), parts, costs, 0), 2)
    torch.testing.assert_close(chosen, alone.actions)
    of_path = parts.planner(parts.cost("acid-path", 1.0), search, SCHEMES["arc"])
    chosen = pool.choose(total(Asked("acid-path", 1.0), parts, costs, 0), 2)
    torch.testing.assert_close(chosen, of_path.solve(problem, seed=[3], initial=middle).actions)
    assert not torch.allclose(costs.terms["path"], costs.terms["consistency"])
    assert torch.equal(total(Asked("acid", 0.0), parts, costs, 0), total(Asked("original"), parts, costs, 0))
    paths = path_of(pool.actions[0], case)
    away = np.linalg.norm(paths[:, 1:, :2] - case.future[:, :2], axis=-1)  # headings and the shared start do not count
    np.testing.assert_allclose(costs.ate, np.sqrt((away**2).mean(1)), atol=1e-6)
    steps, driven = np.diff(paths[:, 1:, :2], axis=1), np.diff(case.future[:, :2], axis=0)
    by_step = np.linalg.norm(steps - driven, axis=-1)
    np.testing.assert_allclose(path_errors(paths, case).rpe, np.sqrt((by_step**2).mean(1)), atol=1e-6)
    assert int(total(Asked("best"), parts, costs, 0).argmin()) == int(np.argmin(costs.ate))
    assert not torch.equal(total(Asked("chance"), parts, costs, 0), total(Asked("chance"), parts, costs, 1))
    still = Trajectory(pool.trajectory.latents[:, :1], torch.zeros(1, 1, 8, 3))
    assert parts.cost("turn", 1.0).terms[1](still, problem.goal).item() == 0


def test_rows_are_written_once_and_resumed_where_they_stopped(table: NavigationTable) -> None:
    work = job(table, *ASKED)
    told: list[tuple[int, int]] = []
    work.run(lambda *now: told.append(now))
    whole = work.file.read_bytes()
    rows = read_rows([work.file])
    assert told[-1] == (18, 18) == (len(rows), work.size)
    assert {(row["condition"], row["lambda"]) for row in rows} == {(a.name, a.lam) for a in ASKED}
    first = [row for row in rows if row["instance"] == rows[0]["instance"]]
    assert len({row["rank_goal"] for row in first}) == 1
    assert first[0]["plan"] == first[2]["plan"]  # λ 0 is Original
    assert first[0]["plan_seconds"] < first[1]["plan_seconds"]

    work.run()
    assert work.file.read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    work.file.write_bytes(b"".join(lines[:8]) + lines[8][:20])  # killed while writing the second case
    work.run()
    again = {(row["instance"], row["condition"], row["lambda"]): row for row in without_time(read_rows([work.file]))}
    assert again == {(row["instance"], row["condition"], row["lambda"]): row for row in without_time(rows)}

    job(table, *ASKED, Asked("turn", 0.3)).run()  # one more condition on the same pools
    more = read_rows([work.file])
    assert len(more) == 21
    assert {row["rank_goal"] for row in more} == {row["rank_goal"] for row in rows}


def test_more_iterations_search_for_themselves(table: NavigationTable) -> None:
    once, refined = job(table, Asked("original")), job(table, Asked("original"), iterations=2)
    assert once.file != refined.file
    once.run()
    refined.run()
    assert len(read_rows([refined.file])) == 3
    assert [row["plan"] for row in read_rows([once.file])] != [row["plan"] for row in read_rows([refined.file])]


def test_a_verifier_of_another_tokenizer_is_refused(table: NavigationTable, tmp_path: Path) -> None:
    import shutil

    other = tmp_path / "other"
    shutil.copytree(table.cell.root, other)
    config = (other / "verifier" / "config.json").read_text()
    name = Parts.load(table.cell).model.tokenizer.fingerprint
    assert name in config
    (other / "verifier" / "config.json").write_text(config.replace(name, "0" * len(name)))
    with pytest.raises(CheckpointError, match="fitted to frames of another tokenizer"):
        Parts.load(Cell("navigation", "nwm", other))
