"""What is built and published: the wheel and the source archive hold what they need, and the lock pins all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
PINNED = {canonicalize_name(name): version for name, version in LOCK.items()}
BLOCKED = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in {blocked!r}
        return None if hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The wheel as an installer unpacks it."""
    (wheel,) = built.glob("*.whl")
    folder = built / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_weights_and_nothing_else(installed: Path) -> None:
    wanted = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "acid").rglob("*") if path.is_file()}
    wanted = {path for path in wanted if "__pycache__" not in path.parts}
    found = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert {path for path in found if path.parts[0] == "acid"} == wanted
    (information,) = {path.parts[0] for path in found} - {"acid"}
    text = (installed / information / "METADATA").read_text(encoding="utf-8")
    assert f"Version: {metadata.version('acid-planning')}" in text
    assert "Description-Content-Type: text/markdown" in text
    assert (installed / information / "entry_points.txt").read_text().split() == [
        "[console_scripts]",
        "acid",
        "=",
        "acid.cli:main",
    ]


@pytest.mark.slow
def test_the_wheel_is_small_enough_to_be_published(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.stat().st_size < 100e6  # what the public index takes


@pytest.mark.slow
def test_the_source_archive_can_be_tested_and_built(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
    for wanted in (
        "pyproject.toml",
        "constraints.txt",
        "LICENSE",
        "Makefile",
        "docs/conf.py",
        "tests/test_packaging.py",
    ):
        assert wanted in names


def run_without(packages: set[str], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code on the unpacked wheel as if some packages were not installed."""
    code = BLOCKED.format(blocked=packages) + code
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=folder)


@pytest.mark.slow
def test_planning_needs_only_the_core_packages(installed: Path) -> None:
    optional = {"tyro", "tqdm", "rich", "h5py", "gymnasium", "mujoco", "scipy", "matplotlib", "PIL", "packaging"}
    code = "import sys; sys.path.insert(0, '.')\nfrom acid.views import health; print(health.__file__, health.plan())"
    done = run_without(optional, code, installed)
    assert done.returncode == 0, done.stderr
    assert str(installed) in done.stdout
    assert "the same plan twice" in done.stdout


def requirements(entry: Requirement) -> list[str]:
    """What a package asks for: this project by its pyproject, others as they are installed."""
    if entry.name == PROJECT["name"]:
        optional = PROJECT["optional-dependencies"]
        return PROJECT["dependencies"] + [line for extra in entry.extras for line in optional[extra]]
    return metadata.requires(entry.name) or []


def closure(extras: str) -> set[str]:
    """The packages that extras need on this machine, directly or not."""
    seen: dict[str, set[str]] = {}
    todo = [Requirement(f"{PROJECT['name']}[{extras}]")]
    while todo:
        entry = todo.pop()
        known = seen.setdefault(canonicalize_name(entry.name), {"nothing yet"})
        if entry.extras | {""} <= known:
            continue
        known |= entry.extras | {""}
        for found in map(Requirement, requirements(entry)):
            if found.marker is None or any(found.marker.evaluate({"extra": extra}) for extra in known):
                todo.append(found)
    return set(seen) - {PROJECT["name"]}


def test_the_lock_pins_everything_that_is_installed_for_the_project() -> None:
    installed = {name: metadata.version(name).partition("+")[0] for name in closure("all,dev") - {"setuptools"}}
    assert {name: PINNED.get(name) for name in installed} == installed


def test_the_lock_satisfies_every_extra_and_names_no_place() -> None:
    for extra, lines in PROJECT["optional-dependencies"].items():
        for entry in map(Requirement, lines):
            name = canonicalize_name(entry.name)
            if name in PINNED:
                assert entry.specifier.contains(PINNED[name]), f"{entry} of the extra {extra} and {PINNED[name]}"
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line


def test_ci_runs_on_every_python_that_is_promised() -> None:
    promised = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if "Python :: 3." in line}
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert promised == set(re.findall(r'"(3\.\d+)"', text)) == {"3.11", "3.12", "3.13"}


def test_what_is_installed_by_hand_on_python_3_13_is_all_that_dm_control_and_ogbench_need() -> None:
    """labmaze, which has no wheel for 3.13, is not imported by what the tasks use."""
    for path in (".github/workflows/ci.yml", "docs/quick-start.md"):
        (line,) = re.findall(r"pip install -c constraints.txt (absl-py .*)", (ROOT / path).read_text(encoding="utf-8"))
        wanted = {
            Requirement(text) for package in ("dm_control", "ogbench") for text in metadata.requires(package) or []
        }
        names = {canonicalize_name(entry.name) for entry in wanted if entry.marker is None}
        others = {
            canonicalize_name(Requirement(text).name)
            for extra in ("reacher", "cube")
            for text in PROJECT["optional-dependencies"][extra]
        }
        indirect = {"glfw", "numpy", "setuptools", "labmaze"}  # of mujoco and of torch; the last is the one left out
        assert names - others - indirect == {canonicalize_name(name) for name in line.split()}, path
    code = (
        "import sys; sys.modules['labmaze'] = None\nimport ogbench.manipspace.envs.cube_env, dm_control.suite.reacher"
    )
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "MUJOCO_GL": "egl"}).returncode == 0
