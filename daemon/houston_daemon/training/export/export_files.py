"""Writes an export: its data files and their folder, completely or not at all.

Files are JSON Lines, or a parquet table or Arrow stream of the format's columns. They are written
as `NAME.unfinished` and renamed together; then come the files that a consumer needs next to them,
and the manifest last. A marker file exists from the first byte to the manifest: after a kill it
shows that the files are ours and may be written again. A spool keeps lines on disk until all are
there, so that they can be reordered. Nobody else writes to the folder meanwhile. pyarrow is
imported only on demand.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from houston_daemon.training.export import export_manifest, llama_factory_format
from houston_daemon.training.export.dataset_card import CARD_NAME
from houston_daemon.training.export.export_format import ExportFormat
from houston_daemon.training.export.export_line_builder import BuiltLine
from houston_daemon.training.export.export_manifest import ExportedFile, ExportManifest
from houston_daemon.training.policies.policy_files import hash_file
from houston_shared import atomic_file
from houston_shared.errors import Busy, ExitCode, HoustonError

if TYPE_CHECKING:
    from houston_daemon.training.export.parquet_writer import TableFile

UNFINISHED = ".unfinished"
EXPORT_FILE_NAMES = tuple(
    f"{stem}.{kind}"
    for stem in ("data", "held_out")
    for kind in ("jsonl", "parquet", "arrow", "rows.jsonl")
)
"""Names that an export's files may have, beside its page and its manifest."""
SUPPORT_FILE_NAMES = ("verl_rows.py", "slime_rows.py", *llama_factory_format.SUPPORT_FILE_NAMES)
"""Names that files beside the data may have."""
SPOOL_NAME = "spool"
"""Of a recipe that changes the order, until all lines are there."""
NOTHING_EXPORTED_MESSAGE = "Nothing was exported."


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
        kind = "arrow" if format.arrow else "parquet" if parquet else "jsonl"
        self.name = f"{stem}.{kind}"
        self._path = folder / (self.name + UNFINISHED)
        as_lines = kind == "jsonl"
        self._file = JsonLinesFile(self._path) if as_lines else _table_file(self._path, format)
        self._rows = self._tokens = self._trained = self._longest = 0
        self._counts_tokens = format.unit == "ids"
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
            self._tokens if self._counts_tokens else None,
            self._trained,
            self._longest,
        )


class LineSpool:
    """Lines on disk until all are there, so that they can be written in another order."""

    def __init__(self, path: Path) -> None:
        self._file = _open_private(path)
        path.unlink()  # it lives as long as it is open
        self._lines: list[tuple[int, int, BuiltLine]] = []

    def add(self, built: BuiltLine) -> None:
        """Keep a line; in memory stays only where it lies."""
        at = self._file.tell()
        self._file.write(built.raw)
        self._lines.append(
            (at, len(built.raw), built._replace(line={}, raw=b"", answers=frozenset()))
        )

    def keys_and_kinds(self) -> list[tuple[str, Any]]:
        """Key and kind of every line, in order."""
        return [(built.key, built.kind) for _, _, built in self._lines]

    def read(self, order: list[int]) -> Iterator[BuiltLine]:
        """Lines by index, in this order."""
        for index in order:
            at, size, built = self._lines[index]
            self._file.seek(at)
            raw = self._file.read(size)
            yield built._replace(raw=raw, line=msgspec.json.decode(raw))

    def close(self) -> None:
        """Give its disk space back."""
        self._file.close()


def check_parquet(format: ExportFormat) -> None:
    """Raise HoustonError where nothing here can write parquet, or the format's Arrow files."""
    if find_spec("pyarrow") is None:
        other = "another format" if format.arrow else "the same without --parquet"
        raise HoustonError(
            f"{f'The format {format.name}' if format.arrow else 'Parquet'} needs pyarrow, which is"
            " not installed.",
            "Nothing was exported.",
            f"pip install 'houston-agents[train]', or {other}",
            ExitCode.CONFIGURATION,
        )


def _table_file(path: Path, format: ExportFormat) -> "TableFile":
    from houston_daemon.training.export.parquet_writer import TableFile

    return TableFile(path, format.columns, stream=format.arrow)


def _index_line(built: BuiltLine, number: int) -> BuiltLine:
    return built._replace(raw=msgspec.json.encode({"line": number, **built.origin}))


def _open_private(path: Path) -> BinaryIO:
    """A new file that only its owner reads: transcripts are nobody else's by default."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")


class ExportFolder:
    """A folder that an export is written into."""

    def __init__(self, folder: Path, force: bool) -> None:
        self.folder = folder
        self._force = force
        self._marker = folder / UNFINISHED

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the folder. Afterwards unfinished files are removed, and so is a new folder that is
        empty. Raises HoustonError where it cannot be used."""
        is_new = not self.folder.exists()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as problem:
            raise _unusable_folder(self.folder, problem) from None
        try:
            self._lock(descriptor)
            self._refuse_foreign_files()
            try:
                yield
            except OSError as problem:
                raise _unusable_folder(self.folder, problem) from None
            finally:
                self._remove_unfinished()
                if is_new:
                    with contextlib.suppress(OSError):  # not empty: it was written
                        self.folder.rmdir()
        finally:
            os.close(descriptor)

    def published(self) -> ExportManifest | None:
        """The export that lies there whole; None where there is none."""
        file = self.folder / export_manifest.MANIFEST_NAME
        if not file.is_file():
            return None
        try:
            return export_manifest.decode_manifest(file.read_bytes(), file)
        except HoustonError:
            if self._force:
                return None
            raise

    def refuse_other(self, inputs: str) -> None:
        """Raise HoustonError where an export of something else lies there, unless forced."""
        other = self.published()
        if other is not None and other.inputs != inputs and not self._force:
            raise self._other_export_error()

    def publish(
        self,
        manifest: ExportManifest,
        page: str,
        names: Sequence[str],
        support: Mapping[str, bytes],
    ) -> bool:
        """Give the files their names; False where the same export lay there already.

        names: files that lie there unfinished. support: files to write beside them. Raises
        HoustonError where another lies there.
        """
        encoded = export_manifest.encode_manifest(manifest)
        if self._is_same_export(manifest, encoded, support):
            return False
        if self.published() is not None and not self._force:
            raise self._other_export_error()
        self._marker.touch(0o600)
        (self.folder / export_manifest.MANIFEST_NAME).unlink(missing_ok=True)
        for name in set(EXPORT_FILE_NAMES) - set(names):
            (self.folder / name).unlink(missing_ok=True)
        for name in names:
            (self.folder / (name + UNFINISHED)).replace(self.folder / name)
        for name in SUPPORT_FILE_NAMES:
            (self.folder / name).unlink(missing_ok=True)
        for name, content in support.items():
            (self.folder / name).parent.mkdir(mode=0o700, exist_ok=True)
            atomic_file.write_atomically(self.folder / name, content)
        atomic_file.write_atomically(self.folder / CARD_NAME, page.encode())
        atomic_file.sync_to_disk(self.folder)
        atomic_file.write_atomically(self.folder / export_manifest.MANIFEST_NAME, encoded)
        self._marker.unlink()
        atomic_file.sync_to_disk(self.folder)
        return True

    def mark(self) -> None:
        """Say that what lies here is being written, where nothing whole does."""
        if self.published() is None:
            self._marker.touch(0o600)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"Another export is being written into {self.folder}.",
                NOTHING_EXPORTED_MESSAGE,
                "Wait for it, or name another folder with --out",
            ) from None

    def _refuse_foreign_files(self) -> None:
        """Refuse a folder with files that are not ours."""
        names = {path.name for path in self.folder.iterdir()}
        whole, unfinished = export_manifest.MANIFEST_NAME in names, UNFINISHED in names
        if whole:
            self.published()
        if self._force or whole or unfinished:
            return
        if foreign := sorted(name for name in names if not name.endswith(UNFINISHED)):
            raise HoustonError(
                f"{self.folder} exists and holds {foreign[0]!r}, which is not an export.",
                NOTHING_EXPORTED_MESSAGE,
                "Name another folder with --out; --force writes into this one",
            )

    def _is_same_export(
        self, manifest: ExportManifest, encoded: bytes, support: Mapping[str, bytes]
    ) -> bool:
        """Whether this very export lies there, byte for byte."""
        manifest_file = self.folder / export_manifest.MANIFEST_NAME
        if not manifest_file.is_file() or manifest_file.read_bytes() != encoded:
            return False
        if not all((self.folder / name).is_file() for name in support):
            return False
        for data in manifest.files:
            file = self.folder / data.name
            if not file.is_file():
                return False
            if hash_file(file) != data.sha256:
                return False
        return True

    def _remove_unfinished(self) -> None:
        for name in (*EXPORT_FILE_NAMES, SPOOL_NAME):
            (self.folder / (name + UNFINISHED)).unlink(missing_ok=True)
        whole = (self.folder / export_manifest.MANIFEST_NAME).exists()
        if whole or not any((self.folder / name).exists() for name in EXPORT_FILE_NAMES):
            self._marker.unlink(missing_ok=True)

    def _other_export_error(self) -> HoustonError:
        return HoustonError(
            f"{self.folder} holds another export: of other rollouts, with other options, or from"
            " before a step or a verdict was added.",
            NOTHING_EXPORTED_MESSAGE,
            "Name another folder with --out; --force replaces it",
        )


def _unusable_folder(folder: Path, problem: OSError) -> HoustonError:
    return HoustonError(
        f"The folder {folder} cannot be written: {problem.strerror or problem}.",
        NOTHING_EXPORTED_MESSAGE,
        "Free space or grant permission there, or name another folder with --out",
    )
