"""The figures of a results folder."""

import json

from acid.experiments import figures

SHARED = {
    **{"task": "toy", "model": "wm", "seed": 0, "metric": "success", "higher_is_better": True},
    **{"final_error": 0.1, "plan_seconds": 0.2, "checkpoints": {}, "goal_offset": 25, "budget": 50},
}


def write(folder, split, condition, search, lam, wins):
    path = folder / "toy" / "wm" / split / f"{condition}_{search}_{lam}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    row = SHARED | {"split": split, "condition": condition, "search": search, "lambda": lam}
    lines = [
        json.dumps(row | {"instance": f"{split}{k}", "draw": k, "solved_at_start": False, "success": k < wins}) + "\n"
        for k in range(10)
    ]
    path.write_text("".join(lines))


def test_figures_are_drawn_at_the_lambda_chosen_on_other_episodes(tmp_path, monkeypatch):
    results, drawn = tmp_path / "results", []
    for search in ("cem-n30-j5-k3", "cem-n300-j5-k30"):
        for split in ("select", "test"):
            write(results, split, "original", search, None, 4)
            for name in ("acid", "control"):
                write(results, split, name, search, 0.1, 9 if split == "select" else 3)
                write(results, split, name, search, 0.5, 2 if split == "select" else 8)
    write(results, "test", "noop", "-", None, 0)
    draw = figures.success_against_budget
    monkeypatch.setattr(figures, "success_against_budget", lambda *a, **k: (drawn.append(a[1]), draw(*a, **k)))
    paths = figures.draw(results, tmp_path / "figures")
    assert [path.name for path in paths] == [
        "toy-wm-budget.png",
        "toy-wm-cem-n30-j5-k3-lambda.png",
        "toy-wm-cem-n300-j5-k30-lambda.png",
    ]
    assert all(path.stat().st_size > 1000 for path in paths)
    assert {budget: round(m.mean, 1) for budget, m in drawn[0]["acid"].items()} == {30: 0.3, 300: 0.3}  # λ = 0.1
