from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Networks this small lose more to waiting for a second thread than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def drives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of navigation, half of which is held out."""
    from small_cells import record_drives

    return record_drives(tmp_path_factory.mktemp("navigation") / "drives.h5")


@pytest.fixture(scope="session")
def navigation_folder(drives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell of navigation that is as small as it can be, with instances and λ."""
    from small_cells import add_instances, make_navigation

    folder = make_navigation(drives, tmp_path_factory.mktemp("cells") / "navigation")
    add_instances(drives, folder, tmp_path_factory.mktemp("results"))
    return folder


@pytest.fixture(scope="session")
def diffusion_folder(drives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same whose world model is NWM with diffusion."""
    from small_cells import add_instances, make_diffusion

    folder = make_diffusion(drives, tmp_path_factory.mktemp("cells") / "diffusion")
    add_instances(drives, folder, tmp_path_factory.mktemp("results"))
    return folder
