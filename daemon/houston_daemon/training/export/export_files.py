"""Data files of an export: JSON Lines, or a parquet table of the format's columns, written whole
or not at all.

Files are written under an unfinished name and get theirs at the end. A spool keeps lines on disk
until all are there, so that they can be written in another order. pyarrow is imported only where
parquet is asked for.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from houston_daemon.training.export.export_format import ExportFormat
from houston_daemon.training.export.export_line_builder import BuiltLine
from houston_daemon.training.export.export_manifest import ExportedFile
from houston_daemon.training.policies.policy_files import hash_file
from houston_shared.errors import ExitCode, HoustonError

if TYPE_CHECKING:
    from houston_daemon.training.export.parquet_writer import ParquetFile

UNFINISHED = ".unfinished"


class JsonLinesFile:
    """JSON Lines."""

    def __init__(self, path: Path) -> None:
        self._file = _open_private(path)

    def write(self, built: BuiltLine) -> None:
        """Append one line."""
        self._file.write(built.raw)
        self._file.write(b"\n")

    def close(self) -> None:
        """Write out and sync."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class DataFile:
    """One data file with its counts, and the index of its lines where the format wants one."""

    def __init__(self, folder: Path, stem: str, format: ExportFormat, parquet: bool) -> None:
        self.name = f"{stem}.{'parquet' if parquet else 'jsonl'}"
        self._path = folder / (self.name + UNFINISHED)
        self._file = _parquet_file(self._path, format) if parquet else JsonLinesFile(self._path)
        self._rows = self._tokens = self._trained = self._longest = 0
        self._counted = format.unit == "ids"
        self.index = f"{stem}.rows.jsonl" if format.index else ""
        self._index = JsonLinesFile(folder / (self.index + UNFINISHED)) if self.index else None

    def write(self, built: BuiltLine) -> None:
        """Append one line."""
        self._file.write(built)
        if self._index is not None:
            self._index.write(_index_line(built, self._rows + 1))
        self._rows += 1
        self._tokens += built.tokens
        self._trained += built.trained
        self._longest = max(self._longest, built.tokens)

    def close(self) -> ExportedFile:
        """Write out, sync, and say what is in it."""
        self._file.close()
        if self._index is not None:
            self._index.close()
        return ExportedFile(
            self.name,
            self._rows,
            self._path.stat().st_size,
            hash_file(self._path),
            self._tokens if self._counted else None,
            self._trained,
            self._longest,
        )


class LineSpool:
    """Lines on disk until all are there, so that they can be written in another order."""

    def __init__(self, path: Path) -> None:
        self._file = _open_private(path)
        path.unlink()  # it lives as long as it is open
        self._kept: list[tuple[int, int, BuiltLine]] = []

    def add(self, built: BuiltLine) -> None:
        """Keep a line; in memory stays only where it lies."""
        at = self._file.tell()
        self._file.write(built.raw)
        self._kept.append(
            (at, len(built.raw), built._replace(line={}, raw=b"", answers=frozenset()))
        )

    def keys_and_kinds(self) -> list[tuple[str, Any]]:
        """Key and kind of every line, in order."""
        return [(built.key, built.kind) for _, _, built in self._kept]

    def read(self, order: list[int]) -> Iterator[BuiltLine]:
        """Lines by index, in this order."""
        for index in order:
            at, size, built = self._kept[index]
            self._file.seek(at)
            raw = self._file.read(size)
            yield built._replace(raw=raw, line=msgspec.json.decode(raw))

    def close(self) -> None:
        """Give its disk space back."""
        self._file.close()


def check_parquet() -> None:
    """Raise HoustonError where nothing here can write parquet."""
    if find_spec("pyarrow") is None:
        raise HoustonError(
            "Parquet needs pyarrow, which is not installed.",
            "Nothing was exported.",
            "pip install 'houston-agents[train]', or the same without --parquet",
            ExitCode.CONFIGURATION,
        )


def _parquet_file(path: Path, format: ExportFormat) -> "ParquetFile":
    from houston_daemon.training.export.parquet_writer import ParquetFile

    return ParquetFile(path, format.columns)


def _index_line(built: BuiltLine, number: int) -> BuiltLine:
    return built._replace(raw=msgspec.json.encode({"line": number, **built.origin}))


def _open_private(path: Path) -> BinaryIO:
    """A new file that only its owner reads: transcripts are nobody else's by default."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")
