"""Takes out of a shadow repository what a power cut may have left of it.

Objects are renamed into place and not synced, so those of the last seconds can be empty, full of
zeros or gone. libgit2 never writes an object that is there, so a broken one would stay broken, and
with it every later snapshot of the same content. Looked for once after each start of the machine.
"""

import logging
from pathlib import Path

log = logging.getLogger(__name__)

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_ZLIB = 0x78
"""First byte of every loose object, whatever wrote it (RFC 1950, a window of 32 KB)."""


def settle(folder: Path, manifest: Path) -> None:
    """Remove broken objects and copies, and forget which files were seen: all are read again.

    folder: the shadow repository. Nothing happens when the machine has not started anew.
    """
    note, boot = folder / "boot", _BOOT.read_text()
    if note.exists() and note.read_text() == boot:
        return
    broken = [path for path in (folder / "objects").glob("??/*") if not _is_whole(path)]
    broken += [path for path in (folder / "large").glob("*-*-*") if not _has_its_size(path)]
    for path in broken:
        path.unlink()
    if broken:
        log.warning("%d objects of %s were cut off by a power cut", len(broken), folder)
    manifest.unlink(missing_ok=True)
    note.write_text(boot)


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) == bytes([_ZLIB])


def _has_its_size(path: Path) -> bool:
    """A copy is named after inode, size and times of what was copied (`large_files`)."""
    size = path.name.split("-")[1]
    return path.stat().st_size == int(size, 16)
