"""Bodies over 64 KB: zstd files under `blobs/<first two digits>/<SHA-256 of the file>.zst`."""

from pathlib import Path

from houston_shared.errors import HoustonError
from houston_shared.home import Home


def place(home: Home, sha256: str) -> Path:
    """Where the blob of this name (hex) lies."""
    return home.blobs / sha256[:2] / f"{sha256}.zst"


def read(home: Home, sha256: str) -> bytes:
    """The body, decompressed; raises HoustonError when it is missing or damaged."""
    import zstandard  # only when a body is large: 5 ms

    path = place(home, sha256)
    try:
        packed = path.read_bytes()
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except OSError as problem:
        cause = f"The body {path} cannot be read ({problem.strerror})."
    except zstandard.ZstdError as problem:
        cause = f"The body {path} is damaged ({problem})."
    raise HoustonError(cause, "What it holds cannot be shown.", "houston verify")
