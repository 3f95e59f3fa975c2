"""Plain values and arrays of numbers from a pickle, without running anything that the file asks for.

A pickle names functions and classes to be called. Here only the names that numpy's arrays are pickled with are known,
and none of them is numpy's own: they are stand-ins that keep what the file says, from which arrays are made afterwards.
"""

from __future__ import annotations

import io
import math
import os
import pickle
from typing import Any

import numpy as np

from acid.errors import DataError
from acid.files import read_bytes, reason

_NUMPY = ("numpy", *(f"numpy.{core}.{part}" for core in ("core", "_core") for part in ("multiarray", "numeric")))
_KINDS = "biuf"  # of numbers: truth values, whole ones, floating ones


class _Type:
    """A numpy.dtype: its letters, and its byte order, which comes later."""

    def __init__(self, letters: str, *_: Any) -> None:
        self.letters, self.order = letters, "|"

    def __setstate__(self, state: Any) -> None:
        _, self.order, *_ = state

    def made(self) -> np.dtype[Any]:
        found = np.dtype(self.letters)
        if found.kind not in _KINDS:
            raise DataError(f"holds an array of {found}, and only numbers are read")
        return found.newbyteorder(">" if self.order == ">" else "<")


class _Array:
    """A numpy.ndarray: empty at first, then filled with shape, type, order of axes and bytes."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self) -> np.ndarray:
        _, shape, kind, is_fortran, content = self.state
        values = np.frombuffer(content, kind.made())
        if values.size != math.prod(shape):
            raise DataError(f"claims an array of {list(shape)} in {values.size} numbers")
        return values.reshape(shape, order="F" if is_fortran else "C")


class _Number:
    """A single number of numpy."""

    def __init__(self, kind: _Type, content: bytes) -> None:
        self.kind, self.content = kind, content

    def made(self) -> Any:
        (value,) = np.frombuffer(self.content, self.kind.made()).tolist()
        return value


def _from_buffer(content: bytes, kind: _Type, shape: tuple[int, ...], order: str) -> _Array:
    """How the newest pickles spell an array."""
    made = _Array()
    made.state = (0, shape, kind, order == "F", content)
    return made


def _latin1(text: str, encoding: str) -> bytes:
    """How the oldest pickles spell bytes."""
    if encoding != "latin1":
        raise DataError(f"asks for the encoding {encoding!r}")
    return text.encode(encoding)


def _no_bytes() -> bytes:
    """How they spell none."""
    return b""


_ARRAYS = {"ndarray": _Array, "_reconstruct": _Array, "dtype": _Type, "scalar": _Number, "_frombuffer": _from_buffer}
_OLD = {("_codecs", "encode"): _latin1, ("__builtin__", "bytes"): _no_bytes, ("builtins", "bytes"): _no_bytes}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _ARRAYS.get(name) if module in _NUMPY else _OLD.get((module, name))
        if found is None:
            raise DataError(f"asks to import {module}.{name}")
        return found


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Numbers, texts, lists, tuples, dicts and arrays; a DataError for anything else."""
    content = read_bytes(path)
    try:
        return _finished(_Unpickler(io.BytesIO(content)).load())
    except DataError as error:
        raise DataError(f"{path} {error} and was not read") from error
    except Exception as error:  # a damaged pickle raises dozens of kinds
        raise DataError(f"{path} is truncated, damaged or no pickle ({reason(error)}); fetch it again") from error


def _finished(value: Any) -> Any:
    if isinstance(value, _Array | _Number):
        return value.made()
    if isinstance(value, dict):
        return {_finished(key): _finished(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_finished(entry) for entry in value)
    if isinstance(value, str | bytes | int | float | None):
        return value
    raise DataError(f"holds a {type(value).__name__.strip('_')}")
