"""What a model or an adapter is, by content: SHA-256 of its files.

Weights of many gigabytes are hashed once: what was hashed is remembered by size and time of change,
in a file beside the policies.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import policies_folder

MODEL_FILES = ("config.json", "tokenizer.json", "*.safetensors", "*.bin", "*.gguf")
"""What decides what a model computes; cards, licences and templates do not."""
_REMEMBERED = "hashes.json"
_CHUNK = 1 << 20


class _Known(msgspec.Struct, frozen=True):
    size: int
    changed: int
    """Nanoseconds; of the inode, which nobody can set back."""
    sha256: str


def of_files(files: Iterable[Path], home: Home | None = None) -> dict[str, str]:
    """SHA-256 (hex) by file name. Raises HoustonError for what cannot be read.

    home: where hashes of large files are remembered; None to read them all.
    """
    known = _recall(home) if home else {}
    fresh = dict(known)
    found = {}
    for file in sorted(files):
        try:
            told = file.stat()
            one = known.get(key := str(file.absolute()))
            if one is None or (one.size, one.changed) != (told.st_size, told.st_ctime_ns):
                one = _Known(told.st_size, told.st_ctime_ns, of_file(file))
        except OSError as problem:
            raise HoustonError(f"{file} cannot be read: {problem.strerror}.") from problem
        fresh[key] = one
        found[file.name] = one.sha256
    if home and fresh != known:
        _remember(home, fresh)
    return found


def of_file(file: Path) -> str:
    """SHA-256 (hex) of one file; raises OSError."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def together(files: Mapping[str, str]) -> str:
    """One hash of many: over names and hashes, by name."""
    lines = "".join(f"{name}\0{files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def model_hash(folder: Path, home: Home | None = None) -> str:
    """One hash of the model in `folder`. Raises HoustonError where there is none."""
    files = [file for pattern in MODEL_FILES for file in folder.glob(pattern)]
    if not any(file.suffix in (".safetensors", ".bin", ".gguf") for file in files):
        raise HoustonError(f"{folder} holds no model: there are no weights in it.")
    return together(of_files(files, home))


def _recall(home: Home) -> dict[str, _Known]:
    """What was hashed before; nothing where that cannot be read: it is hashed again."""
    try:
        raw = (policies_folder(home) / _REMEMBERED).read_bytes()
        return msgspec.json.decode(raw, type=dict[str, _Known])
    except (OSError, msgspec.DecodeError):
        return {}


def _remember(home: Home, known: Mapping[str, _Known]) -> None:
    """Only what is still there; a folder that cannot be written costs another reading."""
    there = {path: one for path, one in known.items() if Path(path).exists()}
    folder = policies_folder(home)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        beside = folder / f".{_REMEMBERED}.new"
        beside.write_bytes(msgspec.json.encode(there))
        beside.replace(folder / _REMEMBERED)
    except OSError:
        return
