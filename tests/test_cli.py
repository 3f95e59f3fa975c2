"""The command line: help that helps, errors in one line, and every command from a clean checkout."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from fake_rows import keep, row

from acid import cli
from acid.cli.evaluate import _usual
from acid.cli.options import Where
from acid.evaluation import Cell, Protocol, condition, read_rows, shipped
from acid.evaluation.cells import ASSETS
from acid.tables import TABLES

TINY = ["--samples", "6", "--iterations", "2", "--elites", "2", "--horizon", "2"]


def printed_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*arguments, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_help_names_every_command(capsys):
    cli.main(["--help"])
    text = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert f"\n  {name} " in text
        assert command.about in text
    cli.main([])
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    "arguments", [["eval", "reacher", "--folder"], ["results"], ["import", "--format", "hdf5", "--out", "x.h5"]]
)
def test_the_terminal_does_not_obey_names(arguments, capsys, tmp_path):
    with pytest.raises(SystemExit):
        cli.main([*arguments, str(tmp_path / "evil\x1b[2J")])
    said = capsys.readouterr().err
    assert "acid: " in said
    assert r"evil\x1b[2J" in said
    assert "\x1b" not in said


def alone(code: str, *, missing: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Code in a fresh interpreter in which some packages are not installed."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({missing}))\n" if missing else "import sys\n"
    spec = "import importlib.util as u; f = u.find_spec\n"
    spec += f"u.find_spec = lambda name, *rest: None if name in {missing} else f(name, *rest)\n"
    return subprocess.run([sys.executable, "-c", hide + spec + code], capture_output=True, text=True)


def test_help_comes_at_once_and_without_any_extra():
    """Importing torch alone takes longer than a person wants to wait for help."""
    heavy = ("torch", "numpy", "tyro", "scipy", "mujoco", "gymnasium", "matplotlib")
    done = alone(
        "from acid import cli; cli.main(['--help']); cli.main(['--version'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert alone("from acid import cli; cli.main(['--help'])", missing=("tyro", "tqdm", "gymnasium")).returncode == 0


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("eval", "tyro", "cli"),
        ("eval reacher", "gymnasium", "evaluation"),
        ("demo", "PIL", "report"),
        ("plan --out plan.png", "matplotlib", "report"),
        ("results --figures f", "matplotlib", "report"),
        ("collect pusht", "h5py", "data"),
        ("collect pusht", "pymunk", "pusht"),
    ],
)
def test_a_missing_package_is_named_with_its_extra_before_anything_is_done(command: str, missing: str, extra: str):
    done = alone(f"from acid import cli; cli.main({command.split()})", missing=(missing,))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "acid: " in line]
    assert f"{missing!r}" in line
    assert line.endswith(f"pip install 'acid-planning[{extra}]'")
    assert "Traceback" not in done.stderr


def test_help_lists_what_may_be_chosen(capsys):
    from acid import models, tasks
    from acid.evaluation import CONDITIONS
    from acid.planning import SEARCHES

    text = " ".join(printed_help(["eval"], capsys).replace("│", " ").split())
    for name in (*tasks.TASKS, *SEARCHES, *CONDITIONS, "lewm", "pldm", "dinowm", "nwm"):
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
    assert "reacher" in printed_help(["collect"], capsys)
    trained = printed_help(["train"], capsys)
    assert all(name in trained for name in (*models.KINDS, "verifier", "decoder"))


def test_an_unknown_command_gets_a_suggestion(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["evall", "reacher"])
    assert stopped.value.code == 1
    assert "unknown command 'evall'; did you mean 'eval'" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command: str, capsys):
    assert "usage: acid " + command in printed_help([command], capsys)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_help_and_only_the_options_that_it_honours(name: str, capsys):
    text = printed_help(["reproduce", name], capsys)
    studies = TABLES[name].studies
    assert ("--tasks" in text) == (len({study.task for study in studies}) > 1)
    assert ("--models" in text) == (len({study.model for study in studies}) > 1)
    assert "--choose" in text


def test_the_installed_command_runs():
    done = subprocess.run([sys.executable, "-m", "acid.cli", "results", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Original on the same episodes" in done.stdout


MISTAKES = {
    "collect recher": "unknown task 'recher'; did you mean 'reacher' or 'reacher-published'?",
    "eval recher": "no weights are shipped for the task 'recher': pass --folder; did you mean 'reacher'?",
    "eval --lambdas -1": "λ of the adaptive weight must be a finite number that is not negative, got -1",
    "eval --lambdas nan": "λ of the adaptive weight must be a finite number that is not negative, got nan",
    "plan --lam -1": "λ of the adaptive weight must be a finite number that is not negative, got -1",
    "eval --samples 0": "samples must be at least 1, got 0",
    "plan --samples 0": "samples must be at least 1, got 0",
    "plan --iterations -2": "iterations must be at least 1, got -2",
    "plan --horizon 0": "horizon must be at least 1, got 0",
    "plan --std -1": "std_init must be positive and finite, got -1",
    "eval --method gradient --samples 4 --elites 2": "the search 'gradient' has no elites; leave it out",
    "eval --conditions noop random --samples 30": "none of these conditions searches: leave --method, --samples",
    "collect --seed -1": "the seed must not be negative, got -1",
    "collect --size 0": "image size must be 8 to 4096 pixels, got 0",
    "train model --threads 0 --data nowhere.h5": "threads must be at least 1, got 0",
    "eval reacher --model lewn": "no weights are shipped for 'reacher/lewn'; pass --folder; did you mean 'reacher/lewm",
    "eval --method cen": "unknown search method 'cen'; did you mean 'cem'",
    "eval --conditions orginal": "unknown condition 'orginal'; did you mean 'original'",
    "eval --conditions best": "the condition 'best' does not apply to reacher with lewm",
    "eval --conditions prior": "'prior' chooses from a pool: it needs a CEM with 1 iteration",
    "eval --conditions original --lambdas 0.1": "none of these conditions has a weight: leave --lambdas out",
    "eval --method mppi --elites 3": "the search 'mppi' has no elites; leave it out",
    "eval --candidates arc --conditions original --episodes 1": "unknown family of candidates 'arc'; known: 'free'",
    "eval --batch 0 --conditions noop": "a batch must have at least 1 episode, got 0",
    "eval --processes 0": "processes must be at least 1, got 0",
    "eval --address auto": "--address needs --engine ray, or leave out 'auto'",
    "collect --slurm timeout_min=5": "--slurm needs --engine slurm, or leave out 'timeout_min=5'",
    "eval --engine slurm --slurm fast": "a setting of Slurm is NAME=VALUE, got 'fast'",
    "eval --episodes 100000": "holds fewer than the 100000 instances asked for",
    "eval --seed 7": "was drawn with seed 0, not 7",
    "eval --device tpu": "tpu",
    "results nowhere": "no results: nowhere is not a folder",
    "train model lewm --data nowhere.h5": "nowhere.h5",
    "plan --folder nowhere": "nowhere is not the folder of a cell: it has no subfolder 'model'",
    "inspect reacher/lewn --data x.h5": "is neither a folder nor a shipped cell; did you mean 'reacher/lewm'",
    "plan --out plan.txt": "the file of a picture must end in .png or .jpg, got 'plan.txt'",
    "plan --rerun plan.txt": "the file of a recording must end in .rrd, got 'plan.txt'",
    "plan --problem -1": "problems are counted from 0, got -1",
    "demo rope --model lewm": "no weights are shipped for 'rope/lewm'",
    "demo --episodes 0": "episodes must be at least 1, got 0",
    "diagnose --problems 0": "episodes must be at least 1, got 0",
    "reproduce planning --tasks recher": "unknown task of the table planning 'recher'; did you mean 'reacher'",
    "reproduce idm --choose --no-evaluate": "no λ is chosen for the table 'idm': leave --choose out",
    "reproduce euler --no-evaluate --figures f": "the table 'euler' has no figures, or lacks the rows that they show",
    "reproduce planning --folder nowhere": "there are no cells of this table below nowhere",
    "serve reacher --condition noop": "the condition 'noop' does not plan, so it cannot be served",
    "serve reacher --condition acd": "unknown condition 'acd'; did you mean 'acid'",
    "serve reacher --connections 0": "the limit connections must be a positive number, got 0",
    "serve reacher --port 65536": "a port is a number from 0 (any that is free) to 65535, got 65536",
    "report --results nowhere": "no results: nowhere is not a folder",
    "report --folder nowhere": "no results: nowhere/results is not a folder",
    "serve reacher --threads 0": "threads must be at least 1, got 0",
    "serve reacher --goal nowhere.png": "nowhere.png is not an image",
    "calibrate reacher --level 2 --episodes 1": "the level must be a share inside (0, 1), got 2",
    "card reacher --folder nowhere": "nowhere is not the folder of a cell: it has no subfolder 'model'",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_are_answered_in_one_line(arguments: str, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments.split())
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    assert MISTAKES[arguments] in error
    assert len([line for line in error.splitlines() if line.startswith("acid: ")]) == 1
    assert "Traceback" not in error
    assert list(tmp_path.rglob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("model --steps 0", "steps must be at least 1, got steps=0"),
        ("model lewm --steps -1", "steps must be at least 1, got steps=-1"),
        ("model lewm --batch-size 0", "batch_size must be at least 1, got batch_size=0"),
        ("verifier lewm --learning-rate -1", "learning_rate must be a positive number, got learning_rate=-1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_the_parser(settings: str, sentence: str, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", *settings.split()])
    assert stopped.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_precision_is_refused_where_nothing_honours_it(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["inspect", "reacher/lewm", "--data", "nowhere.h5", "--precision", "bfloat16"])
    assert stopped.value.code == 2
    assert "--precision" in capsys.readouterr().err


def test_an_unknown_table_is_refused_by_the_parser(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", "planing"])
    assert stopped.value.code == 2
    assert "planning" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemError("AST constructor recursion depth mismatch (before=198, after=216)")]
)
def test_stopping_tells_that_the_same_command_continues(
    error: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from acid.cli.evaluate import Results

    def stop(self: Results) -> None:
        raise error

    monkeypatch.setattr(Results, "run", stop)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["results"])
    assert stopped.value.code == 130
    assert "the same command continues" in capsys.readouterr().err


def test_eval_plays_compares_and_resumes(tmp_path: Path, capsys):
    command = ["eval", "reacher", *TINY, "--episodes", "2", "--processes", "1", "--results", str(tmp_path)]
    cli.main(command)
    text = capsys.readouterr().out
    usual = ("original", "acid", "control", "policy", "random", "noop")
    for name in usual:
        assert f"| {name} " in text
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    rows = read_rows(files)
    assert {row.condition for row in rows} == set(usual)
    assert len({row.instance for row in rows}) == 2
    assert {row.lam for row in rows if row.condition == "acid"} == {0.2}  # the chosen one
    cli.main(command)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == files
    assert capsys.readouterr().out == text


def test_eval_on_select_chooses_a_lambda_for_the_user(tmp_path: Path, capsys):
    shared = ["reacher", *TINY, "--processes", "1", "--results", str(tmp_path)]
    lambdas = ["--conditions", "acid", "--lambdas", "0.1", "0.7"]
    cli.main(["eval", *shared, *lambdas, "--episodes", "1", "--split", "select"])
    assert "chose λ = " in capsys.readouterr().out
    chosen = Cell("reacher", "lewm", user=tmp_path).chosen_lambda(condition("acid"))
    assert chosen in (0.1, 0.7)
    cli.main(["plan", "reacher", *TINY, "--results", str(tmp_path)])
    assert f"ACID, λ {chosen:g}" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["nwm", "nwm-diffusion"])
def test_eval_of_a_tiny_navigation(model: str, request: pytest.FixtureRequest, tmp_path: Path, capsys):
    folder = request.getfixturevalue({"nwm": "navigation_folder", "nwm-diffusion": "diffusion_folder"}[model])
    sizes = ["--samples", "6", "--elites", "2", "--candidates", "line"]
    where = ["navigation", "--model", model, "--folder", str(folder), "--results", str(tmp_path)]
    cli.main(["eval", *where, *sizes, "--episodes", "2", "--processes", "1"])
    text = capsys.readouterr().out
    for name in ("original", "acid", "turn", "prior", "best"):
        assert f"| {name} " in text
    assert "cem-n6-j1-k2-line-r3" in text


def test_fewer_samples_keep_the_share_of_elites():
    from acid.cli.options import SearchOptions
    from acid.evaluation import Cell

    cell = Cell("reacher", "lewm")
    usual, fewer = SearchOptions().spec(cell), SearchOptions(samples=10).spec(cell)
    assert usual.elites / usual.samples == fewer.elites / fewer.samples == 0.1
    assert SearchOptions(samples=10, elites=5).spec(cell).elites == 5


def test_plan_shows_a_plan_and_draws_it(tmp_path: Path, capsys):
    out = tmp_path / "plan.png"
    cli.main(["plan", *TINY, "--problem", "1", "--lam", "0", "--out", str(out), "--results", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "problem 1" in printed
    assert "Original" in printed
    assert out.stat().st_size > 1000


def test_diagnose_prints_a_table_or_json(capsys, monkeypatch: pytest.MonkeyPatch):
    from acid.views import diagnosis

    monkeypatch.setattr(diagnosis, "CANDIDATES", 3)
    monkeypatch.setattr(diagnosis, "SMALL", {"samples": 6, "iterations": 2, "elites": 2})
    cli.main(["diagnose", "reacher", "--problems", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert len(told["problems"]) == 1
    cli.main(["diagnose", "reacher", "--problems", "1"])
    assert "| rank correlation: goal cost, true final error" in capsys.readouterr().out


def test_reproduce_writes_a_table_of_the_rows_that_are_there(tmp_path: Path, capsys):
    for name in ("original", "acid"):
        for path in (ASSETS.parents[2] / "results" / "reacher" / "lewm" / "test").glob(f"{name}_cem-n300*"):
            (tmp_path / "reacher" / "lewm" / "test").mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / "reacher" / "lewm" / "test")
    cli.main(["reproduce", "planning", "--no-evaluate", "--results", str(tmp_path)])
    printed = capsys.readouterr()
    assert "| lewm  | reacher | acid " in printed.out
    assert "left out, not evaluated yet: lewm on cube" in printed.out
    assert f"wrote {tmp_path / 'planning.md'}" in printed.err
    assert (tmp_path / "planning.md").read_text() == printed.out
    assert json.loads((tmp_path / "planning.json").read_text())["lines"]


def test_a_part_of_a_table_does_not_take_the_place_of_the_whole(tmp_path: Path, capsys):
    whole = {name: (ASSETS.parents[2] / "results" / name).read_text() for name in ("planning.md", "planning.json")}
    for name, text in whole.items():
        (tmp_path / name).write_text(text)
    asked = ["--results", str(tmp_path), "--tasks", "reacher", "--models", "pldm", "lewm"]
    cli.main(["reproduce", "planning", "--no-evaluate", *asked])
    text = capsys.readouterr().out
    assert "left out, not evaluated yet: lewm on reacher" in text
    assert "cube" not in text
    assert (tmp_path / "planning-lewm-pldm-reacher.md").read_text() == text
    assert {name: (tmp_path / name).read_text() for name in whole} == whole


def test_what_is_compared_by_default_can_be_run_in_every_shipped_cell():
    for task, model in (name.split("/") for name in shipped()):
        cell = Cell(task, model)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = [entry for entry in _usual(cell, every=False) if entry.weighted]
        assert "acid" in [entry.name for entry in found]
        assert None not in [cell.chosen_lambda(entry) for entry in found]
        every = [entry for entry in _usual(cell, every=True) if entry.weighted]
        assert len(told) == (found != every)
        assert all("left out: no λ was chosen for it" in str(one.message) for one in told)


def test_results_as_a_table_as_json_and_as_figures(tmp_path: Path, capsys):
    for name, lam, wins in (("original", None, 3), ("acid", 0.5, 7)):
        for split in ("test", "select"):
            rows = [row(k, condition=name, lam=lam, split=split, success=k < wins) for k in range(10)]
            keep(tmp_path / "line" / "m" / split / f"{name}.jsonl", rows)
    cli.main(["results", str(tmp_path), "--json"])
    found = {entry["condition"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["acid"]["mean"] == pytest.approx(0.7)
    assert found["acid"]["comparison"]["difference"] == pytest.approx(0.4)
    assert found["acid"]["search"]["samples"] == 300
    cli.main(["results", str(tmp_path), "--metric", "final_error", "--figures", str(tmp_path / "figures")])
    shown = capsys.readouterr()
    assert "final_error 0.250" in shown.out
    assert "line-m-budget.png" in shown.err


def test_card_is_written_for_the_user(tmp_path: Path, capsys):
    cli.main(["card", "reacher", "--results", str(tmp_path)])
    assert capsys.readouterr().out == f"wrote {tmp_path / 'reacher' / 'lewm' / 'README.md'}\n"


def test_the_commands_on_every_card_are_understood(monkeypatch: pytest.MonkeyPatch):
    """What a card says made a cell can be typed again."""
    from acid.cli.train import Train

    asked = []
    monkeypatch.setattr(Train, "train", lambda self, recipe: asked.append((self.part, self.model, self.task, recipe)))
    cards = sorted(ASSETS.glob("*/*/README.md"))
    for card in cards:
        for line in card.read_text().splitlines():
            if line.startswith("acid train "):
                cli.main(shlex.split(line, comments=True)[1:])
                part, model, task, _ = asked[-1]
                assert (task, model) == card.parts[-3:-1]
                assert (card.parent / part).is_dir()
    assert len(asked) > 3 * len(cards) - 1


def test_a_task_and_data_of_your_own(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    """What docs/own-data.md says, with the task of docs/extending.md: from recordings to an evaluation."""
    docs = ASSETS.parents[2] / "docs"
    blocks = re.findall(r"^```python\n(.*?)^```", (docs / "extending.md").read_text(), re.MULTILINE | re.DOTALL)
    (task,) = [block for block in blocks if "class Slide(Task)" in block]
    (tmp_path / "slide_task.py").write_text(task)
    page = (docs / "own-data.md").read_text()
    converter = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    exec(converter[1], {})
    where = ["--data", "data/slide.h5", "--out", "cell", "--task", "slide"]
    quick = ["--steps", "2", "--batch-size", "4"]
    cli.main(["train", "model", "lewm", *where, *quick, "--frameskip", "5"])
    monkeypatch.setattr("acid.verifier.report._NOTHING", 0.5)  # which two steps do not reach
    cli.main(["train", "verifier", "lewm", *where, *quick])
    assert "it cannot check what a model imagines" in capsys.readouterr().out
    cell = Cell("slide_task:Slide", "lewm", Path("cell"))
    asked = re.findall(r"^acid eval slide:Slide (.*) --episodes (\d+)$", page, re.MULTILINE)
    assert len(asked) == 2
    for options, episodes in asked:  # the page's own data are enough for what it asks for
        split = "select" if "--split select" in options else "test"
        protocol = Protocol.of(cell.task_class.setup, episodes=int(episodes), split=split)
        assert len(cell.draw(Path("data/slide.h5"), protocol).unsolved) == int(episodes)
    own = ["slide_task:Slide", "--folder", "cell", "--data", "data/slide.h5"]
    few = ["--conditions", "original", "acid", "--lambdas", "0.1", "--episodes", "2", "--processes", "1"]
    cli.main(["eval", *own, *TINY, *few])
    told = capsys.readouterr()
    assert "drew 2 instances" in told.out
    assert "| acid " in told.out
    assert "acid: warning: the verifier of the cost term 'consistency' tells nothing" in told.err
    assert {(row.task, row.model) for row in read_rows(Path("results").rglob("*.jsonl"))} == {("slide", "lewm")}
    kept = Path("cell/instances-test.jsonl").read_bytes()
    cli.main(["plan", *own, *TINY, "--lam", "0.1"])
    assert "slide_task:Slide with lewm, problem 0" in capsys.readouterr().out
    monkeypatch.setattr("acid.views.diagnosis.CANDIDATES", 3)
    monkeypatch.setattr("acid.views.diagnosis.SMALL", {"samples": 6, "iterations": 2, "elites": 2})
    cli.main(["diagnose", *own, "--problems", "1", "--lam", "0.1"])
    assert "| rank correlation: goal cost, true final error" in capsys.readouterr().out
    assert Path("cell/instances-test.jsonl").read_bytes() == kept


def test_reproduce_all_says_what_would_run(tmp_path: Path, capsys):
    cli.main(["reproduce", "all", "--dry-run", "--results", str(tmp_path)])
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    from acid.tables import TABLES

    assert told.keys() == TABLES.keys()
    assert re.fullmatch(r"\d+ episodes( of \d+ searches)?, time unknown", told["planning"])
    assert told["idm"] == "nothing to evaluate"
    assert not list(tmp_path.iterdir())


def test_one_table_says_what_would_run(tmp_path: Path, capsys):
    cli.main(["reproduce", "swap", "--dry-run", "--results", str(tmp_path), "--tasks", "cube", "--episodes", "3"])
    assert re.fullmatch(r"swap +\d+ episodes, time unknown\n", capsys.readouterr().out)
    assert not list(tmp_path.iterdir())
    cli.main(["reproduce", "transfer", "--dry-run", "--choose", "--results", str(tmp_path), "--tasks", "rope"])
    told = "transfer     240 episodes, time unknown\n"  # 40 problems, three λ, and both tasks: λ is chosen for both
    assert capsys.readouterr().out == told
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "swap", "--dry-run", "--no-evaluate"])
    assert "leave --no-evaluate out" in capsys.readouterr().err


def test_weights_of_the_published_size_are_the_users_own(tmp_path: Path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "planning", "--scale", "paper"])
    assert "weights of the published size are not shipped: train them" in capsys.readouterr().err
    own = tmp_path / "reacher"
    own.mkdir()
    (own / "lewm").symlink_to(ASSETS / "reacher" / "lewm", target_is_directory=True)
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "planning", "--scale", "paper", "--folder", str(tmp_path), "--no-evaluate"])
    assert "was trained at the scale 'lite', not 'paper'" in capsys.readouterr().err


def test_a_preferred_world_model_is_taken_where_it_is_shipped() -> None:
    assert Where("pusht").cell(preferred="lewm-shapes").model == "lewm-shapes"
    assert Where("pusht", "pldm").cell(preferred="lewm-shapes").model == "pldm"
    assert Where("rope").cell(preferred="lewm-shapes").model == "dinowm"
