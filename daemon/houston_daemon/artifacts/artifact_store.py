"""The only access to a store outside the machine: everything that fsspec supports, by its URL.

Objects are named by their content where possible, and compared with it in both directions: a
written object is read back, a read one is checked against its digest. A refusal of the store
becomes one sentence, without keys. The callers know what the objects mean.
"""

import contextlib
import hashlib
import logging
import os
import posixpath
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from houston_shared.atomic_file import open_atomically
from houston_shared.errors import ConfigurationError, Damaged, HoustonError, NotFound
from houston_shared.secret_redaction import redact

BLOCK_BYTES = 8 * 1024 * 1024
"""Of a file that is copied, this much is in memory."""
CONNECT_SECONDS, READ_SECONDS = 10, 60
"""How long a server over S3 may take before it counts as gone."""
_S3_OPTIONS = {
    "config_kwargs": {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"total_max_attempts": 1},  # s3fs itself tries five times
    },
    "default_cache_type": "none",
    "use_listings_cache": False,
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": _S3_OPTIONS,
    "s3a": _S3_OPTIONS,
    "file": {"auto_mkdir": True},
    "local": {"auto_mkdir": True},
}
_WHOLE_WRITES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "memory")
"""Stores in which an object appears whole or not at all; elsewhere it is written beside."""
_LONGEST_REASON = 200
"""Characters of what a store says."""


class StoreRefused(HoustonError):
    """The store cannot be used now: it is gone, it refuses, or it is full. Tried again later."""


class ObjectMissing(NotFound):
    """An object that is named elsewhere is not in the store."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is not in the store.", "Nothing of it was used.")


class ObjectDamaged(Damaged):
    """An object is not what was written under its name."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} is damaged: its bytes do not match its name.",
            "Nothing of it was used.",
        )


def is_store_url(text: str) -> bool:
    """Whether this names a place in a store, and not a path."""
    return "://" in text


class ArtifactStore:
    """Everything below one URL. Names are relative, parted by `/`. Any thread may use it."""

    def __init__(self, url: str) -> None:
        """Connects to nobody yet. Raises ConfigurationError where a package is missing or nobody
        knows the URL's scheme."""
        self.url = url.rstrip("/")
        scheme = url.partition("://")[0]
        self._fs, self._root = _open_file_system(self.url, scheme)
        self._writes_whole = scheme in _WHOLE_WRITES
        self._is_local = scheme in ("file", "local")

    def place(self, name: str) -> str:
        """An object as people read it."""
        return f"{self.url}/{name}"

    def list(self, folder: str) -> dict[str, int]:
        """Bytes of every object below `folder`, by name, sorted. Raises StoreRefused."""
        try:
            entries: dict[str, Any] = self._fs.find(self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        except Exception as problem:
            raise self._refused_error(problem) from problem
        root = self._root.rstrip("/") + "/"
        names = ((path.removeprefix(root), entry) for path, entry in sorted(entries.items()))
        return {name: int(entry["size"] or 0) for name, entry in names if ".new-" not in name}

    def read(self, name: str, sha256: str = "") -> bytes:
        """An object's bytes. Raises ObjectMissing, ObjectDamaged where they do not have the given
        digest, StoreRefused."""
        try:
            data: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            raise ObjectMissing(self.place(name)) from None
        except Exception as problem:
            raise self._refused_error(problem) from problem
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            raise ObjectDamaged(self.place(name))
        return data

    def read_file(self, name: str, target: Path, sha256: str) -> None:
        """Copy an object into a file, which appears whole or not at all.

        Raises ObjectMissing, ObjectDamaged, StoreRefused; HoustonError where the disk is full.
        """
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_atomically(target, mode=0o600) as file:
                for block in self._blocks(name):
                    digest.update(block)
                    file.write(block)
                if digest.hexdigest() != sha256:
                    raise ObjectDamaged(self.place(name))
        except OSError as problem:
            raise disk_failure(target, problem) from problem

    def write(self, name: str, data: bytes) -> None:
        """Write an object and read it back. Raises StoreRefused."""
        self._put(name, lambda path: self._fs.pipe_file(path, data))
        self._check_written(name, hashlib.sha256(data).hexdigest())

    def write_file(self, name: str, source: Path, sha256: str) -> None:
        """Copy a file into an object and read it back. Raises StoreRefused, OSError where the file
        cannot be read."""
        with source.open("rb"):
            pass
        self._put(name, lambda path: self._fs.put_file(str(source), path))
        self._check_written(name, sha256)

    def _put(self, name: str, put: Callable[[str], object]) -> None:
        """Have an object appear whole or not at all. put: writes it to a path."""
        path = self._path(name)
        temp_path = path if self._writes_whole else f"{path}.new-{uuid.uuid4().hex}"
        try:
            put(temp_path)
            if temp_path != path:
                self._fs.mv(temp_path, path)
        except Exception as problem:
            if temp_path != path:
                with contextlib.suppress(Exception):  # it is not there, or the store is gone
                    self._fs.rm_file(temp_path)
            raise self._refused_error(problem) from problem

    def keep_file(self, name: str, source: Path, sha256: str) -> None:
        """Like `write_file`, for a name that stands for its content: an existing object is not
        rewritten."""
        if self.size(name) != source.stat().st_size:
            self.write_file(name, source, sha256)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object only if it does not exist; False if it does. Raises StoreRefused.

        If the store cannot do this atomically, the object is read back to see whose it is.
        """
        try:
            if self._is_local:
                path = Path(self._path(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                self._fs.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        except Exception as problem:
            if self.size(name) is None:
                raise self._refused_error(problem) from problem
        return self.read(name) == data

    def remove(self, names: Collection[str]) -> None:
        """Remove objects; one that is gone already is no error. Raises StoreRefused."""
        for name in names:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                continue
            except Exception as problem:
                raise self._refused_error(problem) from problem

    def size(self, name: str) -> int | None:
        """Bytes of an object; None where there is none. Raises StoreRefused."""
        try:
            return int(self._fs.info(self._path(name))["size"] or 0)
        except FileNotFoundError:
            return None
        except Exception as problem:
            raise self._refused_error(problem) from problem

    def _check_written(self, name: str, sha256: str) -> None:
        digest = hashlib.sha256()
        try:
            for block in self._blocks(name):
                digest.update(block)
        except ObjectMissing:
            raise StoreRefused(
                f"{self.place(name)} was written, but is not there.", "It is written again."
            ) from None
        if digest.hexdigest() != sha256:
            raise StoreRefused(
                f"{self.place(name)} was written, but different bytes were read back.",
                "It is written again.",
            )

    def _blocks(self, name: str) -> Iterator[bytes]:
        """An object's bytes, block by block: what the caller does between is not the store's."""
        try:
            opened = self._fs.open(self._path(name), "rb")
        except FileNotFoundError:
            raise ObjectMissing(self.place(name)) from None
        except Exception as problem:
            raise self._refused_error(problem) from problem
        with opened:
            while True:
                try:
                    block: bytes = opened.read(BLOCK_BYTES)
                except Exception as problem:
                    raise self._refused_error(problem) from problem
                if not block:
                    return
                yield block

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name)

    def _refused_error(self, problem: Exception) -> StoreRefused:
        words = " ".join(redact(str(problem)).split()) or type(problem).__name__
        if isinstance(problem, FileNotFoundError):
            words = f"there is no such place ({words})"
        return StoreRefused(
            f"{self.url} cannot be used: {words[:_LONGEST_REASON].rstrip('.')}.",
            "Nothing is lost: the data waits in the home until the store accepts it.",
            "Check that the store exists and has space, and that the daemon's variables hold "
            "its keys.",
        )


def _open_file_system(url: str, scheme: str) -> tuple[Any, str]:
    try:
        import fsspec  # 40 ms, and an extra
    except ImportError:
        raise _missing_package(url, "houston-agents[store]") from None
    for noisy in ("botocore", "aiobotocore", "s3fs", "fsspec", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # what counts is raised
    try:
        file_system, root = fsspec.core.url_to_fs(url, **_OPTIONS.get(scheme, {}))
    except ImportError as missing:
        raise _missing_package(url, _PACKAGES.get(scheme, str(missing))) from None
    except ValueError as unknown:
        raise ConfigurationError(
            f"{url} names no store that fsspec knows: {unknown}.",
            "Nothing was copied.",
            "s3://bucket/prefix, gs://…, abfs://… or file:///folder",
        ) from None
    return file_system, root


_PACKAGES = {
    "s3": "houston-agents[store]",
    "s3a": "houston-agents[store]",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "sftp": "paramiko",
}


def _missing_package(url: str, package: str) -> ConfigurationError:
    return ConfigurationError(
        f"{url} needs a package that is not installed.",
        "Nothing was copied.",
        f"pip install '{package}'",
    )


@contextlib.contextmanager
def open_folder_atomically(target: Path) -> Iterator[Path]:
    """A temporary path next to `target` for a folder. It replaces `target` on success, and is
    removed otherwise. Raises HoustonError where the disk refuses."""
    temp_folder = target.with_name(f".{target.name}.new")
    shutil.rmtree(temp_folder, ignore_errors=True)
    try:
        yield temp_folder
        temp_folder.rename(target)
    except OSError as problem:
        raise disk_failure(target, problem) from problem
    finally:
        shutil.rmtree(temp_folder, ignore_errors=True)  # gone already when all went well


def disk_failure(target: Path, problem: OSError) -> HoustonError:
    """The sentence for a file of this machine that cannot be written."""
    return HoustonError(
        f"{target} cannot be written: {problem.strerror or problem}.",
        "The unfinished copy was removed; the store still has everything.",
        "Free space or grant permission there, then try again.",
    )
