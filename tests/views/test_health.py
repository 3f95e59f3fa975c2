"""`acid doctor`: it tells what is missing and what is broken, and which is which."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from acid import cli
from acid.errors import AcidError
from acid.views import health


def test_the_doctor_draws_and_plans(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor"])
    printed = capsys.readouterr().out
    assert "✓ drawing: a frame of Reacher" in printed
    assert "✓ planning: Reacher with Le-WM and ACID" in printed
    assert f"torch {metadata.version('torch')}" in printed


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = health._installed
    monkeypatch.setattr(health, "_installed", lambda name: None if name == "h5py" else installed(name))
    lines = {line.split()[1]: line for line in health.extras()}
    assert lines["data"].endswith("missing h5py; run: pip install 'acid-planning[data]'")
    assert "missing h5py" in lines["evaluation"]  # which has the extra data inside
    assert lines["cli"].startswith("  ✓")
    assert "dev" not in lines


def test_what_cannot_be_tried_has_not_failed_and_what_fails_says_why() -> None:
    def missing() -> str:
        raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")

    def broken() -> str:
        raise AcidError("no OpenGL library found")

    assert health.examine("drawing", missing) == (True, "  - drawing: not tried, mujoco is not installed")
    assert health.examine("drawing", broken) == (False, "  ✗ drawing: AcidError: no OpenGL library found")


def test_a_failed_check_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(health, "CHECKS", {"planning": lambda: str(1 / 0)})
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor"])
    assert stopped.value.code == 1
    captured = capsys.readouterr()
    assert "✗ planning: ZeroDivisionError" in captured.out
    assert captured.err == "acid: planning failed: see above\n"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--version"])
    assert capsys.readouterr().out == f"acid {metadata.version('acid-planning')}\n"


ALL_SHELLS = """
from acid import cli
for shell in ("bash", "zsh", "fish"):
    try:
        cli.main(["completion", shell])
    except SystemExit as stopped:
        print("the end" if not stopped.code else stopped.code)
"""


def test_completion_knows_the_commands_in_every_shell() -> None:
    done = subprocess.run([sys.executable, "-c", ALL_SHELLS], capture_output=True, text=True)
    scripts = done.stdout.split("the end")
    assert len(scripts) == 4, done.stderr
    assert all("reproduce" in script and "lambdas" in script for script in scripts[:3])
