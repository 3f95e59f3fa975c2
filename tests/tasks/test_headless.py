import sys

import pytest

from acid.tasks import headless


@pytest.fixture
def bare(monkeypatch):
    """A Linux machine on which nothing has been chosen yet."""
    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return monkeypatch


def test_it_takes_the_first_library_that_loads(bare):
    bare.setattr(headless, "_loads", lambda library: library.startswith("libOSMesa"))
    assert headless.configure() == "osmesa"


def test_a_users_choice_is_kept(bare):
    bare.setenv("MUJOCO_GL", "glfw")
    assert headless.configure() == "glfw"


def test_without_any_library_the_error_names_the_packages(bare):
    bare.setattr(headless, "_loads", lambda library: False)
    with pytest.raises(headless.RenderingError, match="apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"):
        headless.configure()
