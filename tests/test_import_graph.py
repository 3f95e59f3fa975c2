"""Guards the map of the house: which room may import which, and which packages the core may need."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "acid"

FOUNDATION = {"types", "errors", "device", "distributed", "files"}
NETWORKS = FOUNDATION | {"nn", "checkpoint", "loop"}
LIBRARY = NETWORKS | {"workers", "planning", "verifier", "models", "data", "tasks", "training", "evaluation", "report"}
UPPER = {"evaluation", "report", "planning", "tasks"}  # what tables and views are made of

# A room is a folder or a file directly below src/acid. It may import itself and the rooms listed here.
MAY_IMPORT = {
    "acid": FOUNDATION | {"planning", "verifier", "evaluation"},  # the front door, acid/__init__.py; the last is lazy
    "errors": set(),
    "types": {"errors"},
    "device": {"errors"},
    "distributed": {"errors"},
    "files": {"errors"},
    "workers": {"errors", "files"},
    "nn": FOUNDATION,
    "loop": FOUNDATION,
    "checkpoint": FOUNDATION | {"nn"},
    "planning": FOUNDATION,
    "verifier": NETWORKS,
    "models": NETWORKS,
    "data": FOUNDATION,
    "tasks": FOUNDATION | {"data", "workers"},
    "training": NETWORKS | {"models", "verifier", "data", "tasks", "workers"},
    "evaluation": NETWORKS - {"loop"} | {"workers", "planning", "tasks", "data", "models", "verifier", "report"},
    "report": {"errors", "files"},
    "views": FOUNDATION | UPPER | {"data", "models", "verifier", "training", "checkpoint"},
    "tables": FOUNDATION | UPPER | {"views", "data", "nn", "models", "verifier"},
    "serving": FOUNDATION | {"planning", "evaluation", "tasks"},
    "integrations": LIBRARY,
    "cli": LIBRARY | {"tables", "views", "integrations", "serving"},
}

# What the core may import from outside the standard library. Other rooms bring the packages of their extras.
MAY_NEED = {
    "acid": set(),
    "errors": set(),
    "types": {"torch"},
    "device": {"torch"},
    "distributed": {"torch"},
    "files": {"torch", "numpy", "safetensors"},
    "workers": set(),
    "nn": {"torch"},
    "planning": {"torch", "numpy", "safetensors"},
    "verifier": {"torch", "numpy", "safetensors"},
    "models": {"torch", "numpy", "safetensors", "transformers"},  # the last for one encoder, when it is asked for
    "loop": {"torch", "numpy", "safetensors"},
    "checkpoint": {"torch", "numpy", "safetensors"},
}

OPTIONAL_PACKAGES = (
    *("h5py", "mujoco", "dm_control", "gymnasium", "matplotlib", "imageio", "tyro", "scipy", "transformers"),
)


@dataclass(frozen=True)
class Import:
    """One imported module and where it is imported, at the top of a file or inside a function."""

    room: str
    module: str
    place: str  # file:line

    def target(self, rooms: set[str]) -> str | None:
        """The room that is imported, or None for another package. Names of the front door belong to "acid"."""
        top, *rest = self.module.split(".")
        if top != "acid":
            return None
        return rest[0] if rest and rest[0] in rooms else "acid"


def find_imports(package: Path) -> Iterator[Import]:
    for path in sorted(package.rglob("*.py")):
        parts = ("acid", *path.relative_to(package).with_suffix("").parts)
        room = "acid" if parts[1] == "__init__" else parts[1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                place = f"{path.relative_to(package.parent)}:{node.lineno}"
                yield from (Import(room, module, place) for module in imported_modules(node, parts))


def imported_modules(node: ast.Import | ast.ImportFrom, parts: tuple[str, ...]) -> list[str]:
    """Full names; `from acid import x` names acid.x, because x may be a room."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = ".".join([*parts[: -node.level], *filter(None, [node.module])]) if node.level else (node.module or "")
    return [f"{base}.{alias.name}" for alias in node.names] if base == "acid" else [base]


def violations(package: Path) -> list[str]:
    imports = list(find_imports(package))
    rooms = {entry.stem for entry in package.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    strangers = {found.room: found.place for found in reversed(imports) if found.room not in MAY_IMPORT}
    unknown = [
        f"{place}: room {room!r} is not on the map; add it to MAY_IMPORT and to CONTRIBUTING.md"
        for room, place in strangers.items()
    ]
    known = [found for found in imports if found.room in MAY_IMPORT]
    return unknown + [complaint for found in known if (complaint := complain(found, rooms))]


def complain(found: Import, rooms: set[str]) -> str | None:
    target = found.target(rooms)
    if target is None:
        top = found.module.split(".")[0]
        allowed = MAY_NEED.get(found.room)
        if allowed is None or top in allowed or top in sys.stdlib_module_names:
            return None
        return f"{found.place}: the core room {found.room!r} may not need the package {top!r}"
    if target == found.room or target in MAY_IMPORT[found.room]:
        return None
    return f"{found.place}: {found.room!r} may not import {target!r} ({found.module})"


def test_every_import_is_allowed_by_the_map() -> None:
    found = violations(PACKAGE)
    assert not found, "\n" + "\n".join(found)


def test_the_map_itself_has_no_cycles() -> None:
    remaining = {room: set(allowed) for room, allowed in MAY_IMPORT.items()}
    while free := {room for room, allowed in remaining.items() if not allowed & remaining.keys()}:
        remaining = {room: allowed for room, allowed in remaining.items() if room not in free}
    assert not remaining, f"rooms that import each other: {remaining}"


def test_a_forbidden_import_is_reported_with_file_and_line(tmp_path: Path) -> None:
    files = {
        "errors.py": "",
        "planning/__init__.py": "",
        "planning/cem.py": "import torch\ndef f():\n    from acid.tasks import make\n    from .. import models\n",
        "tasks/__init__.py": "import mujoco\nfrom acid import errors, Planner\n",
        "models/lewm.py": "import scipy.stats\nfrom ..errors import AcidError\nimport acid.tasks.base\n",
        "attic.py": "import os\nimport sys\n",
    }
    package = tmp_path / "acid"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    assert violations(package) == [
        "acid/attic.py:1: room 'attic' is not on the map; add it to MAY_IMPORT and to CONTRIBUTING.md",
        "acid/models/lewm.py:1: the core room 'models' may not need the package 'scipy'",
        "acid/models/lewm.py:3: 'models' may not import 'tasks' (acid.tasks.base)",
        "acid/planning/cem.py:3: 'planning' may not import 'tasks' (acid.tasks)",
        "acid/planning/cem.py:4: 'planning' may not import 'models' (acid.models)",
        "acid/tasks/__init__.py:2: 'tasks' may not import 'acid' (acid.Planner)",
    ]


def _tells_a_type(test: ast.expr) -> bool:
    """`x is not None` or `isinstance(x, T)`: for the type checker, of what was checked before."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.IsNot)
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance"


def test_no_assert_checks_input() -> None:
    """`python -O` leaves them out, so that one which refuses something would then accept it."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and not _tells_a_type(node.test)
    ]
    assert found == []


def test_mistakes_are_refused_without_asserts_too() -> None:
    code = (
        "import torch, acid\n"
        "from acid.errors import AcidError\n"
        "from acid.types import Problem\n"
        "class Model:\n"
        "    encode = staticmethod(lambda x: x)\n"
        "    rollout = staticmethod(lambda z, a: z[:, None, None] + a.cumsum(2)[..., None, :])\n"
        "def plan(start, goal, **options):\n"
        "    settings = {'horizon': 2, 'action_size': 2} | options\n"
        "    acid.Planner(Model(), acid.goal_cost(), acid.CEM(4, 1, 2), **settings).solve(Problem(start, goal))\n"
        "good, refused = torch.zeros(2, 1, 2), 0\n"
        "plan(good, good)\n"
        "for call in (lambda: acid.CEM(samples=0), lambda: plan(good, good[:1]),\n"
        "             lambda: plan(good.int(), good.int()), lambda: plan(good, good, horizon=10**9),\n"
        "             lambda: plan(good, good * float('nan')), lambda: plan(torch.zeros(2, 0, 1, 2), good)):\n"
        "    try: call()\n"
        "    except AcidError: refused += 1\n"
        "print(__debug__, refused)"
    )
    said = subprocess.run([sys.executable, "-O", "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["False", "6"]


def test_importing_acid_loads_no_optional_package() -> None:
    code = (
        "import sys, acid\n"
        "[getattr(acid, name) for name in acid.__all__ if name != 'evaluate']\n"  # they are imported when asked for
        f"print(*(name for name in {OPTIONAL_PACKAGES} if name in sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == [], f"import acid loads {', '.join(loaded)}"


def test_every_name_of_the_front_door_is_there() -> None:
    import acid

    assert [name for name in acid.__all__ if not hasattr(acid, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'evaluation_of_everything'"):
        _ = acid.evaluation_of_everything  # type: ignore[attr-defined]


def test_the_front_door_opens_evaluation_only_when_asked() -> None:
    code = (
        "import sys, acid\n"
        "before = [name for name in sys.modules if name.startswith('acid.evaluation')]\n"
        "from acid.evaluation import evaluate\n"
        "print(before, acid.evaluate is evaluate)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[] True\n"


def test_a_missing_package_of_evaluation_is_named() -> None:
    code = (
        "import sys; sys.modules['scipy'] = None\n"
        "import acid\n"
        "try: acid.evaluate\n"
        "except acid.errors.AcidError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "acid.evaluate needs the package 'scipy'; run: pip install 'acid-planning[evaluation]'\n"
