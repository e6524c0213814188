"""Follows a trace on the model disk, up to any of its records."""

from collections.abc import Callable
from pathlib import Path

from tests.faults.power_cut import disk
from tests.faults.power_cut.disk import File, Folder, Node, Resize, Write
from tests.faults.power_cut.trace import MARK, Record

Honest = Callable[[str], bool]
"""Whether syncs of a path are what they say; a liar shows that the checks can fail."""


class Replay:
    """The disk after the records given so far."""

    def __init__(self, root: Path, honest: Honest = lambda path: True) -> None:
        """root: the folder that was traced; it was there, empty and durable, at the beginning."""
        self.root = Folder()
        self._place = root
        self._honest = honest
        self._open: dict[tuple[int, int], tuple[Node, str]] = {}
        self._syncs: dict[tuple[int, int], int] = {}
        """Of syncs that have begun: how many changes of the file's life they cover."""

    def feed(self, record: Record) -> None:
        """Let one more thing happen."""
        key = (record.pid, record.fd)
        match record.op:
            case "o":
                self._opened(key, record)
            case "c":
                self._open.pop(key, None)
            case "w":
                self._file(key).pending.append(Write(record.a, record.first))
            case "t":
                self._file(key).pending.append(Resize(record.a))
            case "a":
                if record.a > len(self._file(key).now()):
                    self._file(key).pending.append(Resize(record.a))
            case "s":
                node = self._open[key][0]
                self._syncs[key] = node.settled + len(node.pending)
            case "S":
                self._synced(key)
            case "r" | "l" | "u" | "d" | "m":
                self._named(record)
            case other:
                assert other == MARK, f"a record of an unknown kind: {other}"

    def _opened(self, key: tuple[int, int], record: Record) -> None:
        folder, name = self._find(record.first)
        node: Node | None = folder.now.get(name) if name else folder
        if node is None:
            # One that exists but was not seen being made is a hole in the trace.
            assert record.b, f"unseen: {record.first!r}"
            node = File()
            folder.change({name: node})
        elif record.a and isinstance(node, File):
            node.pending.append(Resize(0))
        self._open[key] = (node, record.first.decode())

    def _synced(self, key: tuple[int, int]) -> None:
        node, path = self._open[key]
        covered = self._syncs.pop(key)
        if self._honest(path):
            node.settle(covered)

    def _named(self, record: Record) -> None:
        folder, name = self._find(record.first)
        if record.op == "m":
            folder.change({name: Folder()})
        elif name not in folder.now:
            # Sockets: bound, not opened, and meaningless after a power cut.
            assert record.first.endswith(b".sock"), f"unseen: {record.first!r}"
        elif record.op in "ud":
            folder.change({name: None})
        else:
            beside, new = self._find(record.second)
            assert beside is folder, "a rename from one folder to another is not modelled"
            node = folder.now[name]
            folder.change({name: None, new: node} if record.op == "r" else {new: node})

    def _file(self, key: tuple[int, int]) -> File:
        node = self._open[key][0]
        assert isinstance(node, File)
        return node

    def _find(self, path: bytes) -> tuple[Folder, str]:
        *above, name = disk.parts(path, self._place) or ("",)
        folder = self.root
        for one in above:
            inner = folder.now[one]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, name


def differences(folder: Folder, place: Path) -> list[str]:
    """Where the model and the real files differ: what the tracer did not see."""
    real = {one.name: one for one in place.iterdir() if not one.is_socket() and _traced(one.name)}
    known = {name for name in folder.now if _traced(name)}
    found = [str(place / name) for name in real.keys() ^ known]
    for name in real.keys() & known:
        node = folder.now[name]
        if isinstance(node, Folder):
            found += differences(node, real[name])
        elif not name.endswith(disk.Cut.MEMORY) and node.now() != real[name].read_bytes():
            found.append(str(place / name))
    return found


def _traced(name: str) -> bool:
    """The index is written by a process that is not traced: it holds nothing that was acked."""
    return not name.startswith("search.db")
