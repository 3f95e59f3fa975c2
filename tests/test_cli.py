"""The command line: help that helps, errors in one line, results as JSON."""

import json
import subprocess
import sys

import pytest

from acid import cli


def test_every_command_has_help(capsys):
    for command in ("demo", "collect", "train", "plan", "eval", "results"):
        with pytest.raises(SystemExit) as stopped:
            cli.main([command, "--help"])
        assert stopped.value.code == 0
        assert "usage: acid " + command in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect", "recher"], "unknown task 'recher'; did you mean 'reacher'?"),
        (
            ["eval", "reacher", "--model", "lewn"],
            "no weights are shipped for 'reacher/lewn'; pass a folder; did you mean 'reacher/lewm'",
        ),
        (["eval", "--method", "cen"], "unknown search method 'cen'; did you mean 'cem'"),
        (["eval", "--conditions", "orginal"], "unknown condition 'orginal'; did you mean 'original'"),
        (["results", "nowhere"], "nowhere"),
        (["train", "model", "--data", "nowhere.h5"], "nowhere.h5"),
        (["plan", "--folder", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_answered_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_the_installed_command_runs():
    done = subprocess.run([sys.executable, "-m", "acid.cli", "results", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Original on the same episodes" in done.stdout


def test_results_as_json(tmp_path, capsys):
    rows = tmp_path / "reacher" / "lewm" / "test"
    rows.mkdir(parents=True)
    shared = {
        **{"task": "reacher", "model": "lewm", "search": "cem-n30-j30-k3", "split": "test", "seed": 0},
        **{"metric": "success", "higher_is_better": True, "final_error": 0.1, "plan_seconds": 0.2},
        **{"checkpoints": {}, "goal_offset": 25, "budget": 50, "solved_at_start": False},
    }
    for condition, lam, wins in (("original", None, 3), ("acid", 0.5, 7)):
        lines = [
            json.dumps(
                shared | {"condition": condition, "lambda": lam, "instance": f"i{k}", "draw": k, "success": k < wins}
            )
            + "\n"
            for k in range(10)
        ]
        (rows / f"{condition}.jsonl").write_text("".join(lines))
    cli.main(["results", str(tmp_path), "--json"])
    found = {entry["condition"]: entry for entry in json.loads(capsys.readouterr().out)}
    wanted = "task model condition search metric higher_is_better n mean low high"
    wanted += " difference difference_low difference_high p"
    assert set(wanted.split()) <= found["acid"].keys()
    assert found["acid"]["mean"] == pytest.approx(0.7)
    assert found["acid"]["difference"] == pytest.approx(0.4)
    cli.main(["results", str(tmp_path)])
    assert "original" in capsys.readouterr().out
