"""A disk that forgets what was not synced: files and folders as durable state and what is pending.

The model is as hostile as POSIX allows. What was changed before a sync began is durable when the
sync has ended; of everything else any part may have reached the disk, in any order, torn at the
borders of sectors; a file's size may be there without its bytes. A name is durable when its folder
was synced, never because its file was. A rename happens whole or not at all.
"""

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias


class Write(NamedTuple):
    """Bytes at an offset; allocated space is a write of nothing at its end."""

    offset: int
    data: bytes


class Resize(NamedTuple):
    """A file cut or grown to a size."""

    size: int


@dataclass(eq=False)
class File:
    """An inode with bytes."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Resize] = field(default_factory=list)
    settled: int = 0

    def settle(self, until: int) -> None:
        """The first `until` changes of its life are durable."""
        count = max(0, until - self.settled)  # two syncs may overlap
        for change in self.pending[:count]:
            apply(self.durable, change)
        del self.pending[:count]
        self.settled += count

    def now(self) -> bytearray:
        """What a reader sees while the power is on."""
        content = bytearray(self.durable)
        for change in self.pending:
            apply(content, change)
        return content


@dataclass(eq=False)
class Folder:
    """An inode with names."""

    durable: dict[str, "Node"] = field(default_factory=dict)
    pending: list[dict[str, "Node | None"]] = field(default_factory=list)
    """Each whole or not at all; None takes a name away."""
    now: dict[str, "Node"] = field(default_factory=dict)
    settled: int = 0

    def change(self, names: "dict[str, Node | None]") -> None:
        """Names given and taken away in one step."""
        self.pending.append(names)
        rename(self.now, names)

    def settle(self, until: int) -> None:
        """The first `until` changes of its life are durable."""
        count = max(0, until - self.settled)
        for names in self.pending[:count]:
            rename(self.durable, names)
        del self.pending[:count]
        self.settled += count


Node: TypeAlias = File | Folder


def apply(content: bytearray, change: Write | Resize) -> None:
    """Change bytes as the kernel would."""
    if isinstance(change, Resize):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return
    end = change.offset + len(change.data)
    content.extend(bytes(max(0, end - len(content))))
    content[change.offset : end] = change.data


def rename(names: dict[str, Node], change: "dict[str, Node | None]") -> None:
    """Change names as the kernel would."""
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Cut:
    """What is left after the power went: decided by dice, written out as real files."""

    MEMORY = "-shm"
    """SQLite's shared memory: whatever is left of it must not matter."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._sector = dice.choice((512, 4096))
        self._chance = dice.choice((0.0, 1.0, 0.5, 0.1, 0.9))
        """Of each unsynced change to have reached the disk."""

    def write_out(self, root: Folder, place: Path) -> None:
        """Make `place` the folder that is found when the power is back."""
        place.mkdir()
        left = dict(root.durable)
        for change in root.pending:
            if self._kept():
                rename(left, change)
        for name, node in left.items():
            if isinstance(node, Folder):
                self.write_out(node, place / name)
            elif not name.endswith(self.MEMORY):
                (place / name).write_bytes(self._left(node))
            elif self._dice.random() < 0.5:
                (place / name).write_bytes(self._dice.randbytes(32_768))

    def _kept(self) -> bool:
        return self._dice.random() < self._chance

    def _left(self, file: File) -> bytearray:
        content = bytearray(file.durable)
        longest = len(content)
        for change in file.pending:
            if isinstance(change, Resize):
                if self._kept():
                    apply(content, change)
                continue
            longest = max(longest, change.offset + len(change.data))
            for piece in self._torn(change):
                if self._kept():
                    apply(content, piece)
        if len(content) < longest and self._dice.random() < 0.25:
            missing = longest - len(content)  # the size was written, the bytes were not
            zero = self._dice.random() < 0.5
            content.extend(bytes(missing) if zero else self._dice.randbytes(missing))
        return content

    def _torn(self, change: Write) -> list[Write]:
        """The write, sector by sector."""
        if not change.data:
            return [change]
        end = change.offset + len(change.data)
        borders = range((change.offset // self._sector + 1) * self._sector, end, self._sector)
        edges = [change.offset, *borders, end]
        return [
            Write(begin, change.data[begin - change.offset : until - change.offset])
            for begin, until in itertools.pairwise(edges)
        ]


def parts(path: bytes, root: Path) -> tuple[str, ...]:
    """The names that lead from the root to a path."""
    return PurePosixPath(path.decode()).relative_to(root).parts
