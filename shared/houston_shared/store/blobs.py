"""Bodies over 64 KB: zstd files under `blobs/<first two digits>/<SHA-256 of the file>.zst`."""

from pathlib import Path

from houston_shared.errors import HoustonError
from houston_shared.home import Home


def place(home: Home, sha256: str) -> Path:
    """Where the blob of this name (hex) lies."""
    return home.blobs / sha256[:2] / f"{sha256}.zst"


def read(home: Home, sha256: str) -> bytes:
    """The body, decompressed; raises HoustonError when it is missing or damaged."""
    path = place(home, sha256)
    try:
        packed = path.read_bytes()
    except OSError as problem:
        raise _lost(f"The body {path} cannot be read ({problem.strerror}).") from None
    return unpack(home, sha256, packed)


def unpack(home: Home, sha256: str, packed: bytes) -> bytes:
    """The body from the bytes of its file; raises HoustonError when they are damaged."""
    import zstandard  # only when a body is large: 5 ms

    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except zstandard.ZstdError as problem:
        path = place(home, sha256)
        raise _lost(f"The body {path} is damaged ({problem}).") from None


def _lost(cause: str) -> HoustonError:
    return HoustonError(cause, "What it holds cannot be shown.", "houston verify")
