"""From rows on disk to summaries: who is compared with whom, which λ is best, what is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_rows import SPEC, keep, row

from acid.errors import AcidError, DataError
from acid.evaluation import SearchSpec, choose_lambda, paired, summarise, summarise_rows, table
from acid.evaluation.results import mixed_revisions

BIG, SMALL = SPEC, SearchSpec("cem", 30, 30, 3)


def write(
    folder: Path,
    name: str,
    successes: Any,
    *,
    search: SearchSpec | None = None,
    lam: float | None = None,
    split: str = "test",
    errors: Any = None,
    first: int = 0,
    solved: Any = (),
    task: str = "line",
    **changes: Any,
) -> Path:
    """One condition's file: instance i succeeded where successes[i]."""
    errors = [1.0 - s for s in successes] if errors is None else errors
    made = [
        row(
            first + i,
            task=task,
            condition=name,
            search=search,
            lam=lam,
            split=split,
            solved_at_start=first + i in solved,
            success=bool(success),
            final_error=float(error),
            plan_consistency=0.5 if name == "acid" else None,
            **changes,
        )
        for i, (success, error) in enumerate(zip(successes, errors, strict=True))
    ]
    label = "-" if search is None else search.name
    return keep(folder / task / "m" / split / f"{name}_{label}_{lam}.jsonl", made)


def test_conditions_are_paired_with_original_of_their_own_search(tmp_path: Path):
    rng = np.random.default_rng(0)
    big, small, acid = (rng.random(40) < share for share in (0.6, 0.3, 0.8))
    write(tmp_path, "original", big, search=BIG)
    write(tmp_path, "original", small, search=SMALL)
    write(tmp_path, "acid", acid, search=SMALL, lam=0.2)
    write(tmp_path, "noop", np.zeros(40))
    found = {(s.condition, s.search): s for s in summarise(tmp_path)}
    assert len(found) == 4
    original, ours, noop = found["original", SMALL], found["acid", SMALL], found["noop", None]
    assert (original.against, original.comparison) == (None, None)
    assert ours.comparison == paired(
        {(0, f"i{k}"): float(v) for k, v in enumerate(acid)}, {(0, f"i{k}"): float(v) for k, v in enumerate(small)}
    )
    assert ours.against == "original cem-n30-j30-k3"
    assert ours.mean == acid.mean()
    assert ours.low < ours.mean < ours.high
    assert noop.against == "original cem-n300-j30-k30"  # the strongest Original: nothing to hide behind
    assert noop.comparison is not None
    assert noop.comparison.difference == pytest.approx(-big.mean())


def test_an_agent_without_a_search_meets_the_original_of_its_own_rules(tmp_path: Path):
    write(tmp_path, "original", [1, 0, 1, 1], search=SMALL)
    write(tmp_path, "original", [1, 1, 1, 1], search=BIG, budget_steps=100)  # a larger search, given more time
    write(tmp_path, "noop", [0, 0, 1, 0])
    (noop,) = [s for s in summarise(tmp_path) if s.condition == "noop"]
    assert noop.against == "original cem-n30-j30-k3"
    assert noop.comparison is not None
    assert noop.comparison.difference == pytest.approx(-0.5)


def test_an_agent_of_the_users_own_meets_original_too(tmp_path: Path):
    write(tmp_path, "original", [1, 0], search=SMALL)
    write(tmp_path, "mine", [1, 1], search=BIG)
    assert [s.against for s in summarise(tmp_path)] == ["original cem-n30-j30-k3", None]


def test_everyone_may_be_compared_with_one(tmp_path: Path):
    rows = [row(k, condition=name, lam=None, search=spec, model=model, success=k < wins)
            for name, spec, model, wins in (("original", BIG, "m", 1), ("acid", SMALL, "n", 3), ("mine", None, "m", 2))
            for k in range(4)]  # fmt: skip
    found = {s.condition: s for s in summarise_rows(rows, against="mine")}
    assert found["mine"].comparison is None
    assert found["original"].comparison is not None
    assert found["acid"].comparison is not None
    assert found["original"].comparison.difference == pytest.approx(-0.25)
    assert found["acid"].comparison.difference == pytest.approx(0.25)


def test_the_order_of_rows_does_not_matter(tmp_path: Path):
    rng = np.random.default_rng(1)
    rows = [row(k, condition=name, lam=lam, success=rng.random() < 0.5, final_error=float(rng.random()))
            for name, lam in (("original", None), ("acid", 0.2)) for k in range(20)]  # fmt: skip
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    for metric in ("success", "final_error"):
        ordered, other = (summarise_rows(some, metric=metric) for some in (rows, shuffled))
        for a, b in zip(ordered, other, strict=True):
            assert a.comparison == b.comparison
            assert a.mean == pytest.approx(b.mean)


def test_summaries_are_json(tmp_path: Path):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1], search=BIG, lam=0.07)
    for summary in summarise(tmp_path):
        content = json.loads(json.dumps(summary.as_dict(), allow_nan=False))
        assert {"task", "model", "condition", "search", "lam", "split", "metric", "higher_is_better"} <= content.keys()
        assert {"n", "mean", "low", "high", "comparison", "against", "plan_seconds", "final_error"} <= content.keys()
    assert content["comparison"].keys() == {"n", "difference", "low", "high", "p", "test"}


def test_only_shared_instances_are_compared(tmp_path: Path):
    write(tmp_path, "original", [0, 0, 1, 1], search=BIG)
    write(tmp_path, "acid", [1, 1, 1, 0, 0], search=BIG, lam=0.1, first=2)
    (acid,) = [s for s in summarise(tmp_path) if s.condition == "acid"]
    assert acid.comparison is not None
    assert (acid.n, acid.comparison.n, acid.comparison.difference) == (5, 2, 0.0)
    write(tmp_path, "control", [1, 1], search=BIG, lam=0.1, first=50)
    (control,) = [s for s in summarise(tmp_path) if s.condition == "control"]
    assert (control.n, control.comparison, control.against) == (2, None, None)


def test_only_the_test_split_is_reported_unless_asked(tmp_path: Path):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "original", [1, 1], search=BIG, split="select")
    assert [s.split for s in summarise(tmp_path)] == ["test"]
    assert {s.split for s in summarise(tmp_path, split=None)} == {"select", "test"}


def test_other_numbers_can_be_summarised_too(tmp_path: Path):
    write(tmp_path, "original", [0, 1], search=BIG, errors=[1.0, 0.2], metrics={"ate_m": 1.0})
    write(tmp_path, "acid", [0, 1], search=BIG, lam=0.1, errors=[0.5, 0.1], metrics={"ate_m": 2.0})
    _, acid = summarise(tmp_path, metric="final_error")
    assert acid.comparison is not None
    assert (acid.metric, acid.higher_is_better, acid.comparison.test) == ("final_error", False, "sign-flip-exact")
    assert acid.comparison.difference == pytest.approx(-0.3)
    assert [s.mean for s in summarise(tmp_path, metric="ate_m")] == [1.0, 2.0]
    assert [s.condition for s in summarise(tmp_path, metric="plan_consistency")] == ["acid"]  # others do not have it


@pytest.mark.parametrize(
    ("metric", "close"), [("final_eror", "'final_error'"), ("ate", "'ate_m'"), ("instance", "'initial_error'")]
)
def test_an_unknown_metric_is_an_error(tmp_path: Path, metric: str, close: str):
    write(tmp_path, "original", [0, 1], search=BIG, metrics={"ate_m": 1.0})
    with pytest.raises(DataError, match=f"no rows have a number called '{metric}'; .*{close}"):
        summarise(tmp_path, metric=metric)


@pytest.mark.parametrize("changes", [{"checkpoints": {"model": "bbb", "verifier": "v"}}, {"budget_steps": 99}])
def test_results_of_other_weights_or_rules_are_not_compared(tmp_path: Path, changes):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1], search=BIG, lam=0.1, **changes)
    with pytest.raises(DataError, match=r"acid and original of line, m cannot be compared: .*; run one of them again"):
        summarise(tmp_path)


def test_original_needs_no_verifier_to_be_compared(tmp_path: Path):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1], search=BIG, lam=0.1, checkpoints={"model": "aaa", "verifier": "v"})
    acid = summarise(tmp_path)[1]
    assert acid.comparison is not None
    assert acid.comparison.difference == 0.5


def test_the_same_episode_twice_is_an_error(tmp_path: Path):
    path = write(tmp_path, "original", [0, 1], search=BIG)
    path.with_name("copy.jsonl").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="i0 of original for line is in the results twice"):
        summarise(tmp_path)


def test_lambda_is_chosen_on_select_and_ties_go_to_the_smaller_error(tmp_path: Path):
    write(tmp_path, "acid", [1, 0, 0], search=BIG, lam=0.02, split="select")
    write(tmp_path, "acid", [1, 1, 0], search=BIG, lam=0.07, split="select", errors=[0, 0, 5])
    write(tmp_path, "acid", [0, 1, 1], search=BIG, lam=0.2, split="select", errors=[3, 0, 0])
    write(tmp_path, "acid", [1, 1, 1], search=BIG, lam=1.0, split="test")
    found = summarise(tmp_path, split=None)
    assert choose_lambda(found, "m", "acid") == choose_lambda(found[::-1], "m", "acid") == 0.2
    with pytest.raises(DataError, match='no "select" results of control for m on line: run those first'):
        choose_lambda(found, "m", "control", task="line")
    with pytest.raises(DataError, match='no "select" results of acid for n'):
        choose_lambda(found, "n", "acid")


def test_the_smallest_error_is_best_where_less_is_better(tmp_path: Path):
    for lam, errors in ((0.1, [1, 3]), (0.5, [1, 2]), (1.0, [2, 2])):
        write(tmp_path, "acid", [0, 0], search=BIG, lam=lam, split="select", errors=errors, metric="final_error",
              higher_is_better=False)  # fmt: skip
    assert choose_lambda(summarise(tmp_path, split="select"), "m", "acid") == 0.5


def test_one_lambda_serves_all_searches(tmp_path: Path):
    for search, lam, successes in [
        (BIG, 0.1, [1, 1, 1, 0]),
        (BIG, 0.5, [1, 1, 0, 0]),
        (SMALL, 0.1, [0, 0, 0, 0]),
        (SMALL, 0.5, [1, 1, 0, 0]),
        (SMALL, 1.0, [1, 1, 1, 1]),  # not tried with the other search
    ]:
        write(tmp_path, "acid", successes, search=search, lam=lam, split="select")
    summaries = summarise(tmp_path, split="select")
    assert choose_lambda(summaries, "m", "acid") == 0.5
    assert choose_lambda([s for s in summaries if s.search == BIG], "m", "acid") == 0.1


def test_one_lambda_serves_all_tasks_of_a_world_model(tmp_path: Path):
    for task, better in (("line", 0.1), ("plane", 0.5)):
        for lam in (0.1, 0.3, 0.5):
            wins = 9 if lam == better else 7 if lam == 0.3 else 2
            write(tmp_path, "acid", [k < wins for k in range(10)], search=BIG, lam=lam, split="select", task=task)
    write(tmp_path, "acid", [1] * 10, search=BIG, lam=0.7, split="select")  # perfect, but tried on one task only
    summaries = summarise(tmp_path, split="select")
    assert choose_lambda(summaries, "m", "acid") == 0.3
    assert choose_lambda(summaries, "m", "acid", task="plane") == 0.5


def test_one_run_answers_to_the_strict_and_to_the_papers_protocol(tmp_path: Path):
    solved = {1, 2}  # two of the first draws; six strict episodes were asked for, so draws 6 and 7 are strict ones
    write(tmp_path, "original", [0, 1, 1, 0, 1, 0, 0, 0], search=BIG, solved=solved)
    write(tmp_path, "acid", [1, 1, 0, 1, 1, 1, 0, 1], search=BIG, lam=0.1, solved=solved)
    strict, paper = (
        {s.condition: (s.n, round(s.mean, 6), s.starts) for s in summarise(tmp_path, starts=starts)}
        for starts in ("strict", "paper")
    )
    assert strict == {"original": (6, round(1 / 6, 6), "strict"), "acid": (6, round(5 / 6, 6), "strict")}
    assert paper == {"original": (6, round(3 / 6, 6), "paper"), "acid": (6, round(5 / 6, 6), "paper")}


def test_the_papers_protocol_counts_the_first_draws_of_every_seed(tmp_path: Path):
    made = [
        row(draw, condition="original", lam=None, seed=seed, solved_at_start=draw == 1, success=draw == 1)
        for seed in (0, 1)
        for draw in range(4)  # three strict episodes each, and one start that is solved
    ]
    keep(tmp_path / "line" / "m" / "test" / "original.jsonl", made)
    (found,) = summarise(tmp_path, starts="paper")
    assert (found.n, found.mean) == (6, 1 / 3)


@pytest.mark.parametrize("split", ["select", "confirm"])
def test_solved_starts_are_kept_for_the_test_split_alone(tmp_path: Path, split: str):
    write(tmp_path, "original", [0, 1], search=BIG, split=split)
    with pytest.raises(DataError, match=f"are not kept for the split '{split}'; count strict ones"):
        summarise(tmp_path, split=split, starts="paper")


def test_rows_of_several_revisions_are_named():
    clean = [row(k, condition="original", lam=None) for k in range(3)]
    assert mixed_revisions(clean) == []
    mixed = [*clean, row(3, condition="original", lam=None, revision="def")]
    assert mixed_revisions(mixed) == ["line m original cem-n300-j30-k30, test: 4 rows, 2 revisions"]
    dirty = [row(0, revision="abc-dirty"), row(1)]
    assert mixed_revisions([*clean, *dirty]) == [
        "line m acid cem-n300-j30-k30 λ 0.07, test: 1 of 2 rows by uncommitted code, 2 revisions"
    ]


def test_plan_times_are_cpu_seconds_or_else_wall_seconds():
    both = [row(k, plan_cpu_seconds=2.0, plan_wall_seconds=9.0) for k in range(2)]
    assert summarise_rows(both)[0].plan_seconds == 2.0
    assert summarise_rows([replace(one, plan_cpu_seconds=None) for one in both])[0].plan_seconds == 9.0
    assert summarise_rows([row()])[0].plan_seconds is None


def test_the_table_is_aligned_and_complete(tmp_path: Path):
    write(tmp_path, "original", [0, 1, 0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1, 1, 1], search=BIG, lam=0.07)
    write(tmp_path, "noop", [0, 0, 0, 0])
    lines = table(summarise(tmp_path)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [line.split("|")[4].strip() for line in lines[2:]] == ["original", "acid", "noop"]
    assert "+50.0%" in lines[3]
    assert "100.0%" in lines[3]
    assert "split" not in lines[0]
    write(tmp_path, "acid", [1, 1, 1, 1], search=BIG, lam=0.07, split="select")
    assert "split" in table(summarise(tmp_path, split=None)).splitlines()[0]


def test_an_empty_folder_gives_an_empty_table_and_a_missing_one_an_error(tmp_path: Path):
    assert summarise(tmp_path) == []
    assert len(table([]).splitlines()) == 2
    with pytest.raises(DataError, match="nowhere is not a folder"):
        summarise(tmp_path / "nowhere")


def test_rows_of_another_version_are_named(tmp_path: Path):
    path = write(tmp_path, "original", [0, 1], search=BIG)
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1'))
    with pytest.raises(DataError, match="its schema is 1, this version reads 2: run it again"):
        summarise(tmp_path)


def test_an_unknown_split_or_rule_of_starts_is_named(tmp_path: Path):
    with pytest.raises(AcidError, match="unknown split 'tset'; did you mean 'test'"):
        summarise(tmp_path, split="tset")
    with pytest.raises(AcidError, match="unknown rule of which starts count 'papr'; did you mean 'paper'"):
        summarise(tmp_path, starts="papr")  # type: ignore[arg-type]
