"""Ways to damage a file, each drawn by hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

ODD_NUMBERS = [0, -1, 1, 2, 7, 10**6, 10**9, 10**12, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e-320, 1e20, 1e308]
ODD_NUMBERS += [float("nan"), float("inf"), float("-inf")]
ODD_TEXTS = ["", "x", "nan", "../../evil", "/etc/passwd", "\x1b[2J", "a\nb", "\x00", "é" * 3000, "__class__", "\ud800"]
ODD_VALUES = [None, True, False, [], {}, [[]], [None], {"a": 1}, [1, "x", None], *ODD_NUMBERS, *ODD_TEXTS]
odd = st.sampled_from(ODD_VALUES) | st.sampled_from(ODD_VALUES) | st.integers() | st.floats() | st.text(max_size=9)


def paths_of(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the values of a JSON document are; of long lists the first few."""
    inside = (
        content.items() if isinstance(content, dict) else enumerate(content[:4]) if isinstance(content, list) else ()
    )
    return [here, *(path for key, value in inside for path in paths_of(value, (*here, key)))]


def changed(content: Any, path: tuple[Any, ...], how: str, value: Any) -> Any:
    """The document with one value replaced, removed, repeated or renamed."""
    if not path:
        return value
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    key = path[-1]
    if how == "replace":
        place[key] = value
    elif how == "wrap":
        place[key] = [place[key]]
    elif isinstance(place, dict):
        kept = place.pop(key)
        if how == "rename":
            place[str(key) + "_"] = kept
    elif how == "remove":
        del place[key]
    else:
        place.insert(key, place[key])
    return copy


@st.composite
def damaged_json(draw: Any, content: Any) -> bytes:
    """A JSON document with one or two values that are not what they should be."""
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(paths_of(content)))
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "wrap"]))
        content = changed(content, path, how, draw(odd))
        if not isinstance(content, dict | list):
            break
    return json.dumps(content).encode("utf-8", "surrogatepass")


@st.composite
def damaged_bytes(draw: Any, content: bytes) -> bytes:
    """Bytes cut off, flipped, overwritten, repeated, or something else altogether."""
    how = draw(st.sampled_from(["flip", "flip", "flip", "cut", "overwrite", "repeat", "other"]))
    if how == "cut":
        return content[: draw(st.integers(0, max(0, len(content) - 1)))]
    if how == "other":
        return draw(st.binary(max_size=64))
    found = bytearray(content)
    place = draw(st.integers(0, max(0, len(found) - 1)))
    if how == "flip":
        for _ in range(draw(st.integers(1, 4))):
            found[place % len(found)] ^= 1 << draw(st.integers(0, 7))
            place = draw(st.integers(0, max(0, len(found) - 1)))
    elif how == "overwrite":
        found[place : place + 8] = draw(st.sampled_from([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7, b"}" * 8]))
    else:
        found[place:place] = found[place : place + draw(st.integers(1, 64))]
    return bytes(found)
