"""Messages: the bytes of openpi's clients, and bytes that nobody should send."""

from __future__ import annotations

import contextlib

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid.serving import MessageError, pack, unpack

# Written by the msgpack_numpy of openpi-client for the values beside them.
OBSERVATION = (
    "85b16f62736572766174696f6e2f696d61676584c40b5f5f6e6461727261795f5fc3c40464617461c40c000102030405060708090a0bc405"
    "6474797065a37c7531c405736861706593020203a47365656483c40d5f5f6e7067656e657269635f5fc3c4046461746107c4056474797065"
    "a33c6938a17883c40d5f5f6e7067656e657269635f5fc3c40464617461cb3fe0000000000000c4056474797065a33c6634a670726f6d7074"
    "a2676fa16284c40b5f5f6e6461727261795f5fc3c40464617461c4020100c4056474797065a37c6231c40573686170659102"
)
ANSWER = (
    "82a7616374696f6e7384c40b5f5f6e6461727261795f5fc3c40464617461c4080000003f000080bfc4056474797065a33c6634c405736861"
    "7065920102ad7365727665725f74696d696e6781a8696e6665725f6d73cb3ff8000000000000"
)


def test_bytes_are_openpis():
    observation = {
        "observation/image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
        "seed": np.int64(7),
        "x": np.float32(0.5),
        "prompt": "go",
        "b": np.array([True, False]),
    }
    answer = {"actions": np.array([[0.5, -1.0]], np.float32), "server_timing": {"infer_ms": 1.5}}
    assert pack(observation).hex() == OBSERVATION
    assert pack(answer).hex() == ANSWER
    found = unpack(bytes.fromhex(OBSERVATION))
    assert found["observation/image"].dtype == np.uint8
    np.testing.assert_array_equal(found["observation/image"], observation["observation/image"])
    assert (found["seed"], found["x"], found["prompt"]) == (7, 0.5, "go")
    np.testing.assert_array_equal(found["b"], [True, False])


@pytest.mark.parametrize("dtype", ["uint8", ">i2", "int64", "float16", "float32", ">f8", "bool", "<U3"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 0, 2)])
def test_arrays_come_out_as_they_went_in(dtype: str, shape: tuple[int, ...]):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = unpack(pack({"a": array}))["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "value",
    [np.array([object()]), np.array([1j]), np.zeros(1, "i4,f4"), object()],
    ids=["objects", "complex", "records", "object"],
)
def test_what_openpi_does_not_send_is_not_sent(value):
    with pytest.raises(TypeError, match="cannot be part of a message"):
        pack({"a": value})


def array(**changes) -> bytes:
    content = {"data": b"\0" * 8, "dtype": "<f4", "shape": [2], **changes}
    return msgpack.packb({b"__ndarray__": True} | {name.encode(): value for name, value in content.items()})


HOSTILE = {
    "cut short": pack({"a": np.zeros(9)})[:-3],
    "more after it": pack(1) + pack(2),
    "nothing": b"",
    "not msgpack": b"\xc1\xff\xff",
    "text that is not utf-8": b"\xa2\xff\xfe",
    "nested without end": b"\x91" * 100_000,
    "a list that claims 4 billion entries": b"\xdd\xff\xff\xff\xff",
    "a map with lists as names": b"\x81\x91\x01\x01",
    "objects": array(dtype="|O"),
    "records": array(dtype="<f4,<f4"),
    "an array inside": array(dtype="(1000000,1000000)f8"),
    "dtype of numbers": array(dtype=4),
    "no dtype": array(dtype=None),
    "too few bytes": array(shape=[3]),
    "huge": array(shape=[2**40, 2**40]),
    "huge and empty": array(shape=[2**62, 2**62, 0]),
    "negative": array(shape=[-2]),
    "shape of booleans": array(shape=[True, True]),
    "a text as bytes": array(data="12345678"),
    "a number that is a list": msgpack.packb({b"__npgeneric__": True, b"data": [], b"dtype": "<f4"}),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused_with_a_sentence(data: bytes):
    with pytest.raises(MessageError):
        unpack(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes):
    with contextlib.suppress(MessageError):
        unpack(data)


@given(st.data())
def test_damaged_observations_are_a_message_or_refused(data):
    whole = bytearray.fromhex(OBSERVATION)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MessageError):
        unpack(bytes(whole))
