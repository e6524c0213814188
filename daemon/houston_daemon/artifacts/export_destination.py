"""Where an export is written: a folder of this machine, or a place in a store.

All commands whose `--out` takes a URL use this. An export to a store is made in a temporary folder
and copied when complete; the file that marks it complete comes last, and each file is read back.
The content is not known here.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from houston_daemon.artifacts.artifact_store import ArtifactStore, is_store_url
from houston_daemon.maintenance.durable_copy import hash_file
from houston_shared.errors import UsageError

NOTHING_EXPORTED = "Nothing was exported."


class ExportDestination(NamedTuple):
    """Where to write, and what people are shown."""

    folder: Path
    """A folder of this machine."""
    place: str
    """The folder, or the URL that its files go to."""


@contextlib.contextmanager
def open_destination(
    out: str, default: Path, force: bool, last: str = "manifest.json"
) -> Iterator[ExportDestination]:
    """A folder to write an export into; for a URL, its files are copied there afterwards.

    out: the value of `--out`; empty for `default`. force: whether existing objects at the URL may
    be replaced. last: the file that is copied after all others. Raises ConfigurationError for an
    unknown kind of URL; HoustonError where something is there already, StoreRefused.
    """
    if not is_store_url(out):
        folder = Path(out).absolute() if out else default
        yield ExportDestination(folder, str(folder))
        return
    store = ArtifactStore(out)
    before = store.list("")
    if before and not force:
        raise UsageError(
            f"{store.url} is not empty: there are {len(before)} objects.",
            NOTHING_EXPORTED,
            "Name another --out, or replace what is there: --force",
        )
    with tempfile.TemporaryDirectory(prefix="houston-export-") as temporary:
        folder = Path(temporary) / "export"
        yield ExportDestination(folder, store.url)
        names = _copy(store, folder, last)
    store.remove(before.keys() - names)


def _copy(store: ArtifactStore, folder: Path, last: str) -> set[str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in sorted(files, key=lambda path: path.name == last):
        store.write_file(str(path.relative_to(folder)), path, hash_file(path))
    return {str(path.relative_to(folder)) for path in files}
