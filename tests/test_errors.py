"""What a user can act on is said in one sentence."""

from types import SimpleNamespace

import pytest

from acid.errors import AcidError, named


def test_two_entries_of_one_name_are_refused():
    one, other = SimpleNamespace(name="one"), SimpleNamespace(name="other")
    assert named([one, other], "thing") == {"one": one, "other": other}
    with pytest.raises(AcidError, match="there are two entries of the thing 'one'; give one of them another name"):
        named([one, other, SimpleNamespace(name="one")], "thing")
