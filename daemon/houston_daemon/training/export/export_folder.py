"""The folder of an export: nobody else writes to it meanwhile, and half of one never looks whole.

Files are written as `NAME.unfinished` and get their names together, the manifest last. A marker
stands beside them from the first byte to the manifest, so that what a kill has left is known to
be ours and is written again.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from houston_daemon.training.export import export_manifest
from houston_daemon.training.export.export_files import UNFINISHED
from houston_daemon.training.export.export_manifest import ExportManifest
from houston_daemon.training.policies.policy_files import hash_file
from houston_shared import atomic_file
from houston_shared.errors import ExitCode, HoustonError

EXPORT_FILE_NAMES = tuple(
    f"{stem}.{kind}" for stem in ("data", "held_out") for kind in ("jsonl", "parquet", "rows.jsonl")
)
"""Names that an export's files may have, beside its page and its manifest."""
SPOOL_NAME = "spool"
"""Of a recipe that changes the order, until all lines are there."""
NOTHING_EXPORTED_MESSAGE = "Nothing was exported."


class ExportFolder:
    """A folder that an export is written into."""

    def __init__(self, folder: Path, force: bool) -> None:
        self.folder = folder
        self._force = force
        self._marker = folder / UNFINISHED

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold it; afterwards nothing unfinished is left in it, nor an empty folder that was made
        for it. Raises HoustonError where it cannot be used."""
        made = not self.folder.exists()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as problem:
            raise _unusable_folder(self.folder, problem) from None
        try:
            self._lock(held)
            self._refuse_foreign_files()
            try:
                yield
            except OSError as problem:
                raise _unusable_folder(self.folder, problem) from None
            finally:
                self._remove_unfinished()
                if made:
                    with contextlib.suppress(OSError):  # not empty: it was written
                        self.folder.rmdir()
        finally:
            os.close(held)

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

    def publish(self, made: ExportManifest, page: str, names: Sequence[str]) -> bool:
        """Give the files their names; False where the same export lay there already.

        names: files that lie there unfinished. Raises HoustonError where another lies there.
        """
        encoded = export_manifest.encode_manifest(made)
        if self._is_same_export(made, encoded):
            return False
        if self.published() is not None and not self._force:
            raise self._other_export_error()
        self._marker.touch(0o600)
        (self.folder / export_manifest.MANIFEST_NAME).unlink(missing_ok=True)
        for name in set(EXPORT_FILE_NAMES) - set(names):
            (self.folder / name).unlink(missing_ok=True)
        for name in names:
            (self.folder / (name + UNFINISHED)).replace(self.folder / name)
        atomic_file.write_atomically(self.folder / export_manifest.CARD_NAME, page.encode())
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
            raise HoustonError(
                f"Another export is being written into {self.folder}.",
                NOTHING_EXPORTED_MESSAGE,
                "Wait for it, or name another folder with --out",
                ExitCode.BUSY,
            ) from None

    def _refuse_foreign_files(self) -> None:
        """Refuse a folder with files that are not ours."""
        names = {one.name for one in self.folder.iterdir()}
        whole, begun = export_manifest.MANIFEST_NAME in names, UNFINISHED in names
        if whole:
            self.published()
        if self._force or whole or begun:
            return
        if foreign := sorted(name for name in names if not name.endswith(UNFINISHED)):
            raise HoustonError(
                f"{self.folder} is there and holds {foreign[0]!r}, which is no export.",
                NOTHING_EXPORTED_MESSAGE,
                "Name another folder with --out; --force writes into this one",
            )

    def _is_same_export(self, made: ExportManifest, encoded: bytes) -> bool:
        """Whether this very export lies there, byte for byte."""
        known = self.folder / export_manifest.MANIFEST_NAME
        if not known.is_file() or known.read_bytes() != encoded:
            return False
        for one in made.files:
            file = self.folder / one.name
            if not file.is_file():
                return False
            if hash_file(file) != one.sha256:
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
            f"Another export lies in {self.folder}: of other rollouts, with other options, or made"
            " before a step or a verdict came.",
            NOTHING_EXPORTED_MESSAGE,
            "Name another folder with --out; --force replaces it",
        )


def _unusable_folder(folder: Path, problem: OSError) -> HoustonError:
    return HoustonError(
        f"The folder {folder} cannot be written: {problem.strerror or problem}.",
        NOTHING_EXPORTED_MESSAGE,
        "Make room or permission there, or name another folder with --out",
    )
