"""Which packages a command needs, checked before it begins, so that nothing is computed in vain."""

from __future__ import annotations

import importlib.util

from acid.errors import AcidError

EXTRAS = {  # as in pyproject.toml; by the names under which packages are imported
    "cli": ("tyro", "tqdm", "rich"),
    "data": ("h5py", "hdf5plugin"),
    "evaluation": ("h5py", "hdf5plugin", "gymnasium", "scipy"),
    "report": ("matplotlib", "imageio", "PIL", "jinja2", "markdown_it"),
    "serve": ("websockets", "msgpack", "prometheus_client", "PIL"),
    "reacher": ("mujoco", "dm_control"),
    "pusht": ("gym_pusht", "pymunk"),
    "cube": ("ogbench",),
    "rope": ("numba",),
}


def need(what: str, *extras: str) -> None:
    """An AcidError that names the first extra of which a package is missing."""
    for extra in extras:
        for package in EXTRAS[extra]:
            if importlib.util.find_spec(package) is None:
                raise AcidError(f"{what} needs the package {package!r}; run: pip install 'acid-planning[{extra}]'")


def explain(error: ModuleNotFoundError) -> str:
    """One sentence about a package that is missing after all; the error itself if it is none of ours."""
    missing = (error.name or "").split(".")[0]
    for extra, packages in EXTRAS.items():
        if missing in packages:
            return f"the package {missing!r} is missing; run: pip install 'acid-planning[{extra}]'"
    raise error
