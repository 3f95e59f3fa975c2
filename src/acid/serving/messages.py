"""Messages as openpi writes them: msgpack, with an array as a map of its bytes, dtype and shape.

Reading never executes anything: only plain numbers, texts, lists, maps and arrays of them come out.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgpack
import numpy as np

from acid.errors import AcidError

# Booleans, integers and floats of at most 8 bytes, and texts; in either byte order.
_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|[US]\d{1,6})")


class MessageError(AcidError, ValueError):
    """Bytes that are not a message, or a message that says something else than expected."""


def pack(message: Any) -> bytes:
    """A message, numpy arrays and numbers in it included, as bytes."""
    packed = msgpack.packb(message, default=_pack_array)
    assert packed is not None  # for the type checker
    return packed


def unpack(data: bytes) -> Any:
    """The message in these bytes; a MessageError says what is wrong with them."""
    try:
        return msgpack.unpackb(data, object_hook=_unpack_array)
    except MessageError:
        raise
    except Exception as error:  # what msgpack raises is of many kinds, some without a common base
        raise MessageError(f"these {len(data)} bytes are not msgpack ({error or type(error).__name__})") from error


def _pack_array(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"a {type(value).__name__} cannot be part of a message")
    if value.dtype.kind in "VOc":
        raise TypeError(f"an array of {value.dtype} cannot be part of a message")
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}


def _unpack_array(content: dict[Any, Any]) -> Any:
    if b"__npgeneric__" in content:
        number = content.get(b"data")
        if not isinstance(number, bool | int | float):
            raise MessageError(f"a number of a message is a {type(number).__name__}")
        return number
    if b"__ndarray__" not in content:
        return content
    data, dtype, shape = (content.get(name) for name in (b"data", b"dtype", b"shape"))
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise MessageError(
            f"an array of a message has the dtype {str(dtype)[:40]!r}, which is neither numbers nor text"
        )
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 8:
        raise MessageError(f"an array of a message has the shape {str(shape)[:40]}")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not isinstance(data, bytes) or len(data) != size:
        held = len(data) if isinstance(data, bytes) else type(data).__name__
        raise MessageError(f"an array of {dtype} {shape} needs {size} bytes, got {held}")
    return np.frombuffer(data, dtype).reshape(shape)
