"""The one way to read and write files.

Reading: regular files only, never a pipe or a device; what a file claims about its size is compared with its length
before memory is taken; whatever is wrong becomes one sentence that names the file. Nothing in a file is executed.
Writing: through NAME.PROCESS.partial, which becomes NAME when it is complete and on the disk, or is removed.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from acid.errors import AcidError, DataError, plain

Failure = Callable[[str], AcidError]  # which error a caller wants
MOST_TEXT = 512 * 1024**2  # bytes of a text that is read whole; the largest of ours have a few million
MOST_ARRAYS = 4 * 1024**3  # bytes of all arrays of an .npz file; those of our films have some megabytes
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
_FORBIDDEN = re.compile(r"GLOBAL (\S+)")  # how torch names what it refuses to import


def existing(
    path: str | os.PathLike[str], failure: Failure = DataError, missing: str = "there is no such file"
) -> Path:
    """The path, if a regular file is there that may be read."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise failure(f"{path}: {missing}") from None
    except (OSError, ValueError) as error:
        raise failure(f"{os.fspath(path)!r} cannot be read: {reason(error)}") from None
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise failure(f"{path} is {kind}, not a file")
    if not os.access(path, os.R_OK):
        raise failure(f"{path} cannot be read: {os.strerror(errno.EACCES)}; change its permissions")
    return Path(path)


def read_bytes(path: str | os.PathLike[str], failure: Failure = DataError, **options: Any) -> bytes:
    """All of a file that is not absurdly long; options as in `existing`."""
    file = existing(path, failure, **options)
    size = file.stat().st_size
    if size > MOST_TEXT:
        raise failure(f"{file} has {size} bytes; no text of ours is that long")
    try:
        return file.read_bytes()
    except OSError as error:
        raise failure(f"{file} cannot be read: {reason(error)}") from error


def parse_json(
    text: bytes | str, where: str, failure: Failure = DataError, remedy: str = "fetch or make it again"
) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise failure(f"{where} is not valid JSON ({reason(error)}); {remedy}") from error


def read_json(path: str | os.PathLike[str], failure: Failure = DataError, *, remedy: str = "fetch or make it again",
              **options: Any) -> Any:  # fmt: skip
    return parse_json(read_bytes(path, failure, **options), str(path), failure, remedy)


def read_json_object(path: str | os.PathLike[str], failure: Failure = DataError, *,
                     remedy: str = "fetch or make it again", **options: Any) -> dict[str, Any]:  # fmt: skip
    found = read_json(path, failure, remedy=remedy, **options)
    if not isinstance(found, dict):
        raise failure(f"{path} must hold a JSON object, got {clipped(found)}; {remedy}")
    return found


def clipped(value: Any, length: int = 80) -> str:
    """A value for a message: its repr, which a terminal only prints, and not all of a long one."""
    text = repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def load_safetensors(path: str | os.PathLike[str], failure: Failure = DataError) -> dict[str, Tensor]:
    file = existing(path, failure)
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except Exception as error:  # beside its own error, the library lets those of torch pass
        raise failure(f"{file} is truncated or damaged ({reason(error)}); fetch or make it again") from error


def load_torch(
    path: str | os.PathLike[str],
    failure: Failure = DataError,
    *,
    mmap: bool = False,
    device: torch.device | str = "cpu",
    remedy: str = "fetch or make it again",
) -> Any:
    """What `torch.save` wrote: tensors and plain values; nothing is imported or executed.

    `mmap` leaves tensors in the file, where its format allows that, and does not compare its check sums.
    """
    file = existing(path, failure)
    archive = check_archive(file, failure, sums=not mmap, remedy=remedy)
    try:
        return torch.load(file, map_location=device, weights_only=True, mmap=mmap and archive)
    except Exception as error:  # torch has no error of its own for a damaged file: dozens of kinds come out of it
        if forbidden := _FORBIDDEN.search(str(error)):
            raise failure(
                f"{file} asks to import {forbidden[1]} and was not opened; only tensors and plain values are read"
            ) from error
        raise failure(f"{file} is truncated, damaged or holds more than tensors; {remedy}") from error


def check_archive(file: Path, failure: Failure, *, sums: bool, remedy: str) -> bool:
    """Whether a file of torch is an archive, as most are; one that is damaged or claims too much is refused.

    torch neither compresses nor compares check sums: a compressed entry is a bomb, a wrong sum a flipped bit.
    """
    if not zipfile.is_zipfile(file):
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            if packed or sum(entry.file_size for entry in entries) > file.stat().st_size:
                raise failure(f"{file} claims to hold more than its length; it was not opened")
            damaged = archive.testzip() if sums else None
    except AcidError:
        raise
    except Exception as error:  # zipfile, too, lets many kinds pass
        raise failure(f"{file} is truncated or damaged ({reason(error)}); {remedy}") from error
    if damaged is not None:
        raise failure(f"{file} is damaged: the check sum of {damaged!r} is wrong; {remedy}")
    return True


def load_arrays(path: str | os.PathLike[str], *, remedy: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, without objects."""
    file = existing(path)
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_ARRAYS:
            raise DataError(f"{file} claims to hold {size / 2**30:.0f} GiB; it was not opened")
        with np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except AcidError:
        raise
    except Exception as error:  # zipfile and numpy raise many kinds
        raise DataError(f"{file} is not a file of arrays ({reason(error)}); {remedy}") from error


@contextmanager
def replacing(path: str | os.PathLike[str], failure: Failure = DataError) -> Iterator[Path]:
    """`with replacing(path) as partial:` write to `partial`; it becomes `path` if the block ends well."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")  # two processes may write the same file
    with writing(target, failure):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        partial.touch()
        mode = stat.S_IMODE(partial.stat().st_mode)  # what the user's mask allows
        try:
            yield partial
            partial.chmod(mode)  # some libraries make files that nobody else may read
            flush(partial)
            os.replace(partial, target)
            flush(target.parent)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _remove_leftovers(target: Path) -> None:
    """What processes left that were killed while they wrote this file."""
    for left in target.parent.glob(f"{glob.escape(target.name)}.*.partial"):
        process = left.name.removeprefix(f"{target.name}.").removesuffix(".partial")
        if process.isdecimal() and not _runs(int(process)):
            left.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return process != os.getpid()


@contextmanager
def writing(path: str | os.PathLike[str], failure: Failure = DataError) -> Iterator[None]:
    """Turns what the system says against writing into one sentence: a full disk, a folder that is read-only."""
    try:
        yield
    except OSError as error:
        raise failure(f"cannot write {path}: {reason(error)}; free some space or choose another folder") from error


def write_text(path: str | os.PathLike[str], text: str, failure: Failure = DataError) -> None:
    with replacing(path, failure) as partial:
        partial.write_text(text, encoding="utf-8")


def save_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """An OSError if the disk refuses."""
    try:
        save_file(dict(tensors), path, metadata=dict(metadata or {}))
    except SafetensorError as error:
        raise OSError(reason(error)) from error


def save_torch(path: Path, content: Any) -> None:
    """An OSError if the disk refuses."""
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:  # what torch makes of an OSError
        raise OSError(reason(error.__cause__ or error.__context__ or error)) from error


class GrowingFile:
    """A file to which whole lines are added: what the disk does not take whole is taken back."""

    def __init__(self, path: Path, failure: Failure = DataError) -> None:
        self.path, self._failure = path, failure
        with writing(path, failure):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                existing(path, failure)
            self.file = path.open("ab", buffering=0)

    def add(self, lines: bytes, *, sync: bool = False) -> None:
        with writing(self.path, self._failure):
            end = os.fstat(self.file.fileno()).st_size
            try:
                left = memoryview(lines)
                while left:
                    left = left[self.file.write(left) :]
                if sync:
                    os.fsync(self.file.fileno())
            except OSError:
                self.file.truncate(end)
                raise

    def cut(self, end: int) -> None:
        self.file.truncate(end)

    def close(self) -> None:
        self.file.close()


def claim(descriptor: int, path: str | os.PathLike[str], failure: Failure = DataError) -> None:
    """Nobody else may write an open file until it is closed or the process dies.

    Where the system has no such lock, trust the user.
    """
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise failure(f"{path} is being written by another process: wait for it or stop it first") from error


def flush(path: Path) -> None:
    """Force a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_name(name: str, what: str, failure: Failure = DataError) -> str:
    """A name that becomes part of a path: one part, that can be printed."""
    if not name or name in (".", "..") or name != plain(name) or "/" in name or "\\" in name or len(name) > 200:
        raise failure(f"the {what} {clipped(name)} cannot be part of a file's name; use letters, digits, - and _")
    return name


def reason(error: BaseException) -> str:
    """The first line of what an error says."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return plain((str(error).strip() or type(error).__name__).splitlines()[0][:200])
