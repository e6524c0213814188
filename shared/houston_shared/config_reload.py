"""Settings files that are edited while a program runs: an edit is noticed, read when complete, and
applied or refused.

A thread with watchfiles reports changes at once, but that is only a hint. What the file system says
of a file (inode, size, time) decides, so that an edit without a report (a network file system, a
lost event) is noticed at the next look. A file is read once it has been left alone for a moment:
editors write in parts, or replace the file. What a configuration means is not known here.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_shared.config import Configuration, LoadedConfiguration, load_configuration
from houston_shared.errors import ConfigurationError, HoustonError

SETTLE_SECONDS = 0.3
"""How long a file must have been left alone before it is read."""
FIND_AGAIN_SECONDS = 10.0
"""Between two looks where links lead, with nothing told of them."""
_WATCH_INTERVAL_MS = 1_000
_STAYS_IN_FORCE = "The earlier configuration stays in force."

FileStamp = tuple[int, int, int] | None
_NEVER_SEEN = (0, 0, 0)
"""The stamp of no file, not even of one that is gone."""


def read_file_stamp(path: Path) -> FileStamp:
    """What tells one state of a file from another; None while it is not there."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class EditedFiles:
    """Some files, of which one wants to know that they changed and are whole."""

    def __init__(self) -> None:
        self._reported: dict[Path, FileStamp] = {}
        """What each file was like when its content was last told of."""
        self._unsettled: dict[Path, tuple[FileStamp, float]] = {}
        """Files that changed since: what they are like now, and since when."""

    def follow(self, paths: Iterable[Path], report_existing: bool = False) -> None:
        """Look at these from now on, and at no others.

        report_existing: those that were not looked at before are told as changed.
        """
        wanted_paths = set(paths)
        for path in self._reported.keys() - wanted_paths:
            del self._reported[path]
            self._unsettled.pop(path, None)
        for path in wanted_paths - self._reported.keys():
            self._reported[path] = _NEVER_SEEN if report_existing else read_file_stamp(path)

    @property
    def followed(self) -> set[Path]:
        """The files that are looked at."""
        return set(self._reported)

    def changed(self, now: float) -> list[Path]:
        """Files that changed and have settled since; each change is told once. now: monotonic."""
        settled = []
        for path, reported in self._reported.items():
            stamp = read_file_stamp(path)
            last_stamp, since = self._unsettled.get(path, (reported, now))
            if stamp != last_stamp:
                self._unsettled[path] = (stamp, now)
            elif stamp == reported:
                self._unsettled.pop(path, None)
            elif now - since >= SETTLE_SECONDS:
                settled.append(path)
                self._reported[path] = stamp
                self._unsettled.pop(path, None)
        return settled

    def due(self, now: float) -> float | None:
        """When to look again, for what has changed and not yet settled; None for nothing."""
        return min((since + SETTLE_SECONDS for _, since in self._unsettled.values()), default=None)


class FilePlace(NamedTuple):
    """Where a file lies, and what it leads to where it is a link."""

    path: Path
    real: Path
    is_link: bool
    """Whether another file may come to be meant without a change of this one: all of its folder
    counts. The name `*.toml` stands for everything in its folder, too."""


def find_place(file: Path) -> FilePlace:
    """Where a file lies; costs a look at each folder above it."""
    path, real = file.absolute(), file.resolve()
    is_link = path.name.startswith("*") or real != path.parent.resolve() / path.name
    return FilePlace(path, real, is_link)


class WatchedPaths:
    """Paths on which an event means a change: the files themselves, or their folders.

    Other files in these folders do not count: a home has its database there, which changes with
    every commit.
    """

    def __init__(self, places: Iterable[FilePlace]) -> None:
        self._paths: set[str] = set()
        self._folders: set[str] = set()
        """Folders of which all counts."""
        for path, real, is_link in places:
            folders = {str(path.parent), str(real.parent)}
            self._paths |= {str(path), str(real), *folders}
            if is_link:
                self._folders |= folders

    def __contains__(self, path: str) -> bool:
        """Whether something that happened to a path is worth a look."""
        happened = Path(path).absolute()
        return str(happened) in self._paths or str(happened.parent) in self._folders


class FolderWatcher:
    """A thread that calls `wake` when something happens to one of the files."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: called from the thread; must not block."""
        self._wake = wake
        self._folders: frozenset[Path] = frozenset()
        self._stop = threading.Event()
        self._places: dict[Path, FilePlace] = {}
        """Of the files that are followed, as they were found."""
        self._touched = threading.Event()
        """Whether something happened since: a link may lead elsewhere."""
        self._find_again = 0.0
        """When to find all of them anew, monotonic: not every change is told of."""
        self._awaited = WatchedPaths(())

    def follow(self, paths: Iterable[Path]) -> None:
        """Watch the folders of these files from now on, and of those that links lead to."""
        now = time.monotonic()
        if self._touched.is_set() or now >= self._find_again:
            self._touched.clear()
            self._places, self._find_again = {}, now + FIND_AGAIN_SECONDS
        self._places = {path: self._places.get(path) or find_place(path) for path in set(paths)}
        self._awaited = WatchedPaths(self._places.values())
        parents = {path.parent for path in self._places}
        parents |= {place.real.parent for place in self._places.values()}
        folders = frozenset(folder for folder in parents if folder.is_dir())
        if folders == self._folders:
            return
        self.close()
        self._folders, self._stop = folders, threading.Event()
        if folders:
            args = (sorted(folders), self._stop)
            threading.Thread(target=self._watch, args=args, daemon=True, name="edits").start()

    def close(self) -> None:
        """Watch nothing any more. Idempotent."""
        self._stop.set()
        self._folders = frozenset()

    def _watch(self, folders: list[Path], stop: threading.Event) -> None:
        from watchfiles import watch  # 15 ms that commands do not pay

        try:
            for _ in watch(
                *folders,
                stop_event=stop,
                recursive=False,
                watch_filter=lambda _, path: path in self._awaited,
                step=50,
                debounce=200,
                rust_timeout=_WATCH_INTERVAL_MS,
                ignore_permission_denied=True,
                raise_interrupt=False,
            ):
                self._touched.set()
                self._wake()
        except (OSError, RuntimeError):
            # A folder went, or no watch is left: looks still find every edit, only later.
            self._wake()


# --- houston.toml ------------------------------------------------------------------------------

RESTART_KEYS = (
    "home",
    "daemon.group",
    "daemon.drain_seconds",
    "daemon.silent_seconds",
    "daemon.log_mb",
    "daemon.log_files",
    "metrics",
    "recorder",
    "hosts.root",
    "hosts.gpus",
    "ray",
    "secrets",
    "notify.urls",
)
"""Keys and tables that a daemon reads as it starts: folders, sockets, what children inherit
or take out of text."""


class ConfigurationEdit(NamedTuple):
    """What became of a changed configuration."""

    changed: tuple[str, ...] = ()
    """Keys that are in force with their new values, dotted."""
    later: tuple[str, ...] = ()
    """Keys that keep their old values until a restart."""
    refused: str = ""
    """Why nothing of it was taken."""


class ConfigurationFile:
    """houston.toml of one `LoadedConfiguration`, which is given what the file says from then on."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        self._loaded = loaded
        home = loaded.home.path
        self.path = Path(loaded.file) if loaded.file else home / "houston.toml"

    def take(
        self,
        check: Callable[[LoadedConfiguration], None] | None = None,
        restart: tuple[str, ...] = RESTART_KEYS,
    ) -> ConfigurationEdit:
        """Read it again, and have `loaded` say so; `restart` keys keep what they were.

        check: refuses a configuration by a HoustonError.
        """
        if not self.path.is_file() and self._loaded.file:
            return ConfigurationEdit(refused=f"{self.path} is gone. {_STAYS_IN_FORCE}")
        try:
            edited = self._read_again()
            if check:
                check(edited)
        except HoustonError as problem:
            return ConfigurationEdit(refused=f"{problem.cause} {_STAYS_IN_FORCE}")
        before = _flatten_configuration(self._loaded.config)
        after = _flatten_configuration(edited.config)
        differ = sorted(
            key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        )
        later = tuple(key for key in differ if _is_within(key, restart))
        changed = tuple(key for key in differ if key not in later)
        self._loaded.config = _keep_values(self._loaded.config, edited.config, later)
        self._loaded.source = edited.source
        return ConfigurationEdit(changed, later)

    def _read_again(self) -> LoadedConfiguration:
        return load_configuration(str(self._loaded.home.path), self._loaded.file)


def _is_within(key: str, tables: tuple[str, ...]) -> bool:
    # GPUs of hosts are counted once, whichever host they are of.
    gpus = key.startswith("hosts.named.") and key.endswith(".gpus") and "hosts.gpus" in tables
    return gpus or any(key == table or key.startswith(f"{table}.") for table in tables)


def _flatten_configuration(config: Configuration) -> dict[str, Any]:
    """Every key of a configuration, dotted; engines and hosts by name and key."""
    values: dict[str, Any] = {}

    def walk(value: Any, where: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{where}.{key}".lstrip("."))
        else:
            values[where] = value

    walk(msgspec.to_builtins(config), "")
    return values


def _keep_values(
    before: Configuration, after: Configuration, keys: tuple[str, ...]
) -> Configuration:
    """`after`, with the values that `before` has of `keys`."""
    tables, old = msgspec.to_builtins(after), msgspec.to_builtins(before)
    for key in keys:
        *path, name = key.split(".")
        level, old_level = tables, old
        for part in path:
            level, old_level = level.setdefault(part, {}), old_level.get(part, {})
        if name in old_level:
            level[name] = old_level[name]
        elif name in level:
            del level[name]
    try:
        return msgspec.convert(tables, Configuration)
    except msgspec.ValidationError as problem:
        raise ConfigurationError(f"The configurations do not fit together: {problem}.") from None
