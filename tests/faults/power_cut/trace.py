"""The trace of what processes did to the files of one folder, with the acks that clients got.

`tracer.c` writes the records of the recorder's processes, clients append theirs with `Marks`; the
file's order is the order of cause and effect. Nothing here knows what the files hold.
"""

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEADER = struct.Struct("<BxxxiiIIqq")
MARK = "k"


class Record(NamedTuple):
    """One thing that happened."""

    op: str
    """As in tracer.c: open, close, write, truncate, allocate, sync begin and end, …; `k`: a mark"""
    pid: int
    fd: int
    a: int
    b: int
    first: bytes
    second: bytes


def compiled(folder: Path) -> Path:
    """The tracer as a shared library; raises CalledProcessError with the compiler's words."""
    library = folder / "tracer.so"
    source = Path(__file__).with_name("tracer.c")
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-lpthread"]
    subprocess.run(command, check=True)
    return library


def read(path: Path) -> list[Record]:
    """All records."""
    return list(_records(path.read_bytes()))


def _records(data: bytes) -> Iterator[Record]:
    at = 0
    while at + HEADER.size <= len(data):
        op, pid, fd, first, second, a, b = HEADER.unpack_from(data, at)
        begin, middle = at + HEADER.size, at + HEADER.size + first
        at = middle + second
        yield Record(chr(op), pid, fd, a, b, data[begin:middle], data[middle:at])


class Marks:
    """A client's own records: what it was told, appended when it was told."""

    def __init__(self, trace: Path) -> None:
        self._file = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, **said: Any) -> None:
        text = json.dumps(said).encode()
        os.write(self._file, HEADER.pack(ord(MARK), os.getpid(), -1, len(text), 0, 0, 0) + text)

    def close(self) -> None:
        os.close(self._file)
