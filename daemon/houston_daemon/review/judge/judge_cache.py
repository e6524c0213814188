"""Answers of judges by the content of the question: the same question is asked once.

A file per answer under `<home>/judge/`, named by a hash over template, engine, model, policy,
parameters and the window's text. It is written under another name, synced and renamed, and holds
its own hash: a kill or a flipped bit costs an answer but never gives a wrong one. It may be deleted
at any time.
"""

import hashlib
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from houston_shared import atomic_file
from houston_shared.home import Home

CACHE_FORMAT = 1


class CachedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One usable answer, and what it cost when it was given."""

    answer: str
    """JSON as the judge wrote it, without secrets."""
    engine: str
    template: str
    prompt_tokens: int
    sampled_tokens: int
    seconds: float
    tries: int
    """How many requests it took."""


class _CacheFile(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    kept: msgspec.Raw
    sha256: str
    """Of the bytes of `kept`."""


def cache_key(parts: Mapping[str, Any]) -> str:
    """Hash of everything that makes an answer, hex."""
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class JudgeCache:
    """The answers of one home. Several processes may use it at once."""

    def __init__(self, home: Home) -> None:
        self._folder = home.path / "judge"

    def get(self, name: str) -> CachedAnswer | None:
        """The answer to a question; None where there is none, or its file is not sound."""
        try:
            record = msgspec.json.decode(self._file(name).read_bytes(), type=_CacheFile)
            if record.format != CACHE_FORMAT or record.sha256 != _answer_digest(record.kept):
                return None
            return msgspec.json.decode(record.kept, type=CachedAnswer)
        except (OSError, msgspec.DecodeError):  # whatever cannot be read is asked again
            return None

    def put(self, name: str, answer: CachedAnswer) -> None:
        """Keep an answer; once this returns it outlives a power cut. Raises OSError."""
        file = self._file(name)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        raw = msgspec.Raw(msgspec.json.encode(answer))
        data = msgspec.json.encode(
            _CacheFile(format=CACHE_FORMAT, kept=raw, sha256=_answer_digest(raw))
        )
        temporary_file = atomic_file.temporary_sibling(file)
        with atomic_file.open_atomically(
            file, temporary_path=temporary_file, mode=0o600
        ) as written:
            written.write(data)

    def forget(self) -> None:
        """Remove every answer: reasons quote what was judged, and that is to go. Raises OSError."""
        trash_folder = self._folder.with_name(f".{self._folder.name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):  # nothing was ever judged here
            self._folder.rename(trash_folder)  # whole: another process may write meanwhile
            shutil.rmtree(trash_folder)

    def _file(self, name: str) -> Path:
        return self._folder / name[:2] / f"{name}.json"


def _answer_digest(raw: msgspec.Raw) -> str:
    return hashlib.sha256(bytes(raw)).hexdigest()
