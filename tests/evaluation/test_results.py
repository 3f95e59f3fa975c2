from __future__ import annotations

import json

import numpy as np
import pytest

from acid.errors import DataError
from acid.evaluation import Condition, RowFile, choose_lambda, paired, summarise, table
from acid.evaluation.results import search_budget

BIG, SMALL = "cem-n300-j30-k30", "cem-n30-j30-k3"
SAME = {"checkpoints": {"model": "aaa"}, "goal_offset": 25, "budget": 50}


def write(
    folder,
    name,
    successes,
    *,
    search="-",
    lam=None,
    split="test",
    errors=None,
    first=0,
    solved=(),
    task="line",
    **changes,
):
    """One condition's file: instance i succeeded where successes[i]."""
    condition = Condition(task, "m", name, search, lam)
    same = SAME | changes
    errors = errors if errors is not None else [1.0 - s for s in successes]
    rows = [
        {
            **condition.columns(),
            "split": split,
            "seed": 0,
            "instance": f"i{first + i}",
            "draw": first + i,
            "solved_at_start": first + i in solved,
            "success": bool(success),
            "final_error": float(error),
            "plan_seconds": 2.0,
            "consistency": 0.5 if name == "acid" else None,
            "metric": "success",
            "higher_is_better": True,
            **same,
        }
        for i, (success, error) in enumerate(zip(successes, errors, strict=True))
    ]
    with RowFile(condition.file(folder, split), same) as file:
        file.append(rows)


def test_conditions_are_paired_with_original_of_their_own_search(tmp_path):
    rng = np.random.default_rng(0)
    big, small, acid = (rng.random(40) < share for share in (0.6, 0.3, 0.8))
    write(tmp_path, "original", big, search=BIG)
    write(tmp_path, "original", small, search=SMALL)
    write(tmp_path, "acid", acid, search=SMALL, lam=0.2)
    write(tmp_path, "noop", np.zeros(40))
    found = {(s.condition, s.search): s for s in summarise(tmp_path)}
    assert len(found) == 4
    original, ours, noop = found["original", SMALL], found["acid", SMALL], found["noop", "-"]
    assert (original.against, original.difference, original.p) == (None, None, None)
    expected = paired(dict(enumerate(acid * 1.0)), dict(enumerate(small * 1.0)))
    assert ours.against == f"original {SMALL}"
    assert (ours.difference, ours.p, ours.test) == (pytest.approx(expected.difference), expected.p, "mcnemar-exact")
    assert ours.mean == acid.mean()
    assert ours.low < ours.mean < ours.high
    assert noop.against == f"original {BIG}"  # the strongest Original: nothing to hide behind
    assert noop.difference == pytest.approx(-big.mean())


def test_an_agent_without_a_search_meets_the_original_of_its_own_rules(tmp_path):
    write(tmp_path, "original", [1, 0, 1, 1], search=SMALL)
    write(tmp_path, "original", [1, 1, 1, 1], search=BIG, budget=100)  # a larger search, given more time
    write(tmp_path, "noop", [0, 0, 1, 0])
    found = {s.condition: s for s in summarise(tmp_path)}
    assert found["noop"].against == f"original {SMALL}"
    assert found["noop"].difference == pytest.approx(-0.5)


def test_json_has_the_promised_keys(tmp_path):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1], search=BIG, lam=0.07)
    promised = {"task", "model", "condition", "search", "lambda", "split", "metric", "higher_is_better"}
    promised |= {"n", "mean", "low", "high", "difference", "difference_low", "difference_high", "p", "against"}
    promised |= {"plan_seconds", "final_error"}
    for summary in summarise(tmp_path):
        assert promised <= set(json.loads(json.dumps(summary.as_dict(), allow_nan=False)))


def test_only_shared_instances_are_compared(tmp_path):
    write(tmp_path, "original", [0, 0, 1, 1], search=BIG)
    write(tmp_path, "acid", [1, 1, 1, 0, 0], search=BIG, lam=0.1, first=2)
    (acid,) = [s for s in summarise(tmp_path) if s.condition == "acid"]
    assert (acid.n, acid.pairs, acid.difference) == (5, 2, 0.0)


def test_only_the_test_split_is_reported_unless_asked(tmp_path):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "original", [1, 1], search=BIG, split="select")
    assert [s.split for s in summarise(tmp_path)] == ["test"]
    assert {s.split for s in summarise(tmp_path, split=None)} == {"select", "test"}


def test_other_columns_can_be_summarised_too(tmp_path):
    write(tmp_path, "original", [0, 1], search=BIG, errors=[1.0, 0.2])
    write(tmp_path, "acid", [0, 1], search=BIG, lam=0.1, errors=[0.5, 0.1])
    _, acid = summarise(tmp_path, metric="final_error")
    assert (acid.metric, acid.higher_is_better, acid.test) == ("final_error", False, "sign-flip-exact")
    assert acid.difference == pytest.approx(-0.3)
    assert [s.condition for s in summarise(tmp_path, metric="consistency")] == ["acid"]


@pytest.mark.parametrize("changes", [{"checkpoints": {"model": "bbb", "verifier": "v"}}, {"budget": 99}])
def test_results_of_other_weights_or_rules_are_not_compared(tmp_path, changes):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1], search=BIG, lam=0.1, **changes)
    with pytest.raises(DataError, match="cannot be compared"):
        summarise(tmp_path)


def test_original_needs_no_verifier_to_be_compared(tmp_path):
    write(tmp_path, "original", [0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1], search=BIG, lam=0.1, checkpoints={"model": "aaa", "verifier": "v"})
    assert summarise(tmp_path)[1].difference == 0.5


def test_the_same_episode_twice_is_an_error(tmp_path):
    write(tmp_path, "original", [0, 1], search=BIG)
    (path,) = tmp_path.rglob("*.jsonl")
    path.with_name("copy.jsonl").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="twice"):
        summarise(tmp_path)


def test_lambda_is_chosen_on_select_and_ties_go_to_the_smaller_error(tmp_path):
    write(tmp_path, "acid", [1, 0, 0], search=BIG, lam=0.02, split="select")
    write(tmp_path, "acid", [1, 1, 0], search=BIG, lam=0.07, split="select", errors=[0, 0, 5])
    write(tmp_path, "acid", [0, 1, 1], search=BIG, lam=0.2, split="select", errors=[3, 0, 0])
    write(tmp_path, "acid", [1, 1, 1], search=BIG, lam=1.0, split="test")
    assert choose_lambda(summarise(tmp_path, split=None), "m") == 0.2
    with pytest.raises(DataError, match="control"):
        choose_lambda(summarise(tmp_path, split=None), "m", "control", task="line")


def test_one_lambda_serves_all_searches_unless_one_is_named(tmp_path):
    for search, lam, successes in [
        (BIG, 0.1, [1, 1, 1, 0]),
        (BIG, 0.5, [1, 1, 0, 0]),
        (SMALL, 0.1, [0, 0, 0, 0]),
        (SMALL, 0.5, [1, 1, 0, 0]),
        (SMALL, 1.0, [1, 1, 1, 1]),  # not tried with the other search
    ]:
        write(tmp_path, "acid", successes, search=search, lam=lam, split="select")
    summaries = summarise(tmp_path, split="select")
    assert choose_lambda(summaries, "m") == 0.5
    assert choose_lambda(summaries, "m", task="line", search=BIG) == 0.1
    assert choose_lambda(summaries, "m", task="line", search=SMALL) == 1.0


def test_the_table_is_aligned_and_complete(tmp_path):
    write(tmp_path, "original", [0, 1, 0, 1], search=BIG)
    write(tmp_path, "acid", [1, 1, 1, 1], search=BIG, lam=0.07)
    write(tmp_path, "noop", [0, 0, 0, 0])
    lines = table(summarise(tmp_path)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [line.split("|")[4].strip() for line in lines[2:]] == ["original", "acid", "noop"]
    assert "+50.0%" in lines[3]
    assert "100.0%" in lines[3]


def test_an_empty_folder_gives_an_empty_table_and_a_missing_one_an_error(tmp_path):
    assert summarise(tmp_path) == []
    assert len(table([]).splitlines()) == 2
    with pytest.raises(DataError, match="nowhere"):
        summarise(tmp_path / "nowhere")


def test_search_budgets_are_read_from_names():
    assert search_budget(BIG) == 9000
    assert search_budget("shooting-n9000") == 9000
    assert search_budget("-") == 0


def test_one_run_answers_to_the_strict_and_to_the_papers_protocol(tmp_path):
    solved = {1, 2}  # two of the first draws; six strict episodes were asked for, so draws 6 and 7 are strict ones
    write(tmp_path, "original", [0, 1, 1, 0, 1, 0, 0, 0], search=BIG, solved=solved)
    write(tmp_path, "acid", [1, 1, 0, 1, 1, 1, 0, 1], search=BIG, lam=0.1, solved=solved)
    strict, paper = (
        {s.condition: (s.n, round(s.mean, 6), s.starts) for s in summarise(tmp_path, starts=starts)}
        for starts in ("strict", "paper")
    )
    assert strict == {"original": (6, round(1 / 6, 6), "strict"), "acid": (6, round(5 / 6, 6), "strict")}
    assert paper == {"original": (6, round(3 / 6, 6), "paper"), "acid": (6, round(5 / 6, 6), "paper")}


def test_one_lambda_serves_all_tasks_of_a_world_model(tmp_path):
    for task, better in (("line", 0.1), ("plane", 0.5)):
        for lam in (0.1, 0.3, 0.5):
            wins = 9 if lam == better else 7 if lam == 0.3 else 2
            write(tmp_path, "acid", [k < wins for k in range(10)], search=BIG, lam=lam, split="select", task=task)
    write(tmp_path, "acid", [1] * 10, search=BIG, lam=0.7, split="select")  # perfect, but tried on one task only
    summaries = summarise(tmp_path, split="select")
    assert choose_lambda(summaries, "m") == 0.3
    assert choose_lambda(summaries, "m", task="plane") == 0.5


def test_rows_of_an_older_version_are_named(tmp_path):
    write(tmp_path, "original", [0, 1], search=BIG)
    (path,) = tmp_path.rglob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({n: v for n, v in row.items() if n != "draw"}) + "\n" for row in rows))
    with pytest.raises(DataError, match="no column 'draw': they were written by an older version"):
        summarise(tmp_path)
