"""Where a rollout's terminals lie on a host, and how a terminal's byte log is cut into files.

`<host root>/rollouts/<rollout>/terminals/<name>/log.<offset>`: segments named after the offset of
their first byte in the whole log; `terminals/socket` holds the path of the tmux socket. The host
writes this, consoles and headless commands on the same machine read it. Nothing is written here.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

PANE_COLUMNS, PANE_ROWS = 160, 50
"""Cells of every terminal of a rollout, whoever looks at it: what its log was written for."""
_SEGMENT_PREFIX = "log."
_OFFSET_DIGITS = 16
_READ_BLOCK_BYTES = 1 << 20


def rollout_folder(host_root: Path, rollout: str) -> Path:
    """All that a rollout owns on a host."""
    return host_root / "rollouts" / rollout


def terminals_folder(host_root: Path, rollout: str) -> Path:
    """The folder with one folder for each terminal."""
    return rollout_folder(host_root, rollout) / "terminals"


def socket_note(terminals: Path) -> Path:
    """The file that holds the path of the rollout's tmux socket."""
    return terminals / "socket"


def segment_file(terminal: Path, offset: int) -> Path:
    """The file of a segment whose first byte is the log's byte `offset`."""
    return terminal / f"{_SEGMENT_PREFIX}{offset:0{_OFFSET_DIGITS}d}"


def list_segments(terminal: Path) -> list[tuple[int, Path]]:
    """Offset and file of every segment, in order. Raises OSError where there is no such folder."""
    names = os.listdir(terminal)  # noqa: PTH208
    offsets = {
        name: name[len(_SEGMENT_PREFIX) :] for name in names if name.startswith(_SEGMENT_PREFIX)
    }
    return sorted(
        (int(digits), terminal / name)
        for name, digits in offsets.items()
        if digits.isascii() and digits.isdigit()
    )


def read_log_blocks(terminal: Path, start: int, end: int) -> Iterator[bytes]:
    """The bytes of [start, end) of a log, whatever segments they lie in; fewer where some are gone.

    Raises OSError where there is no such folder.
    """
    segments = list_segments(terminal)
    following = [offset for offset, _ in segments[1:]] + [end]
    for (offset, path), after in zip(segments, following, strict=False):
        if after <= start or offset >= end:
            continue
        with path.open("rb") as file:
            file.seek(max(0, start - offset))
            remaining = end - max(start, offset)
            while remaining > 0 and (data := file.read(min(_READ_BLOCK_BYTES, remaining))):
                remaining -= len(data)
                yield data


_TAIL_BYTES = 8192
_ESCAPE_SEQUENCE = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, the daemon's marks among them
    rb"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
)


def read_last_line(terminal: Path, start: int, end: int | None = None) -> str:
    """The last line with anything on it in [start, end) of a log, without control sequences; empty
    where there is none, or no log. end: None for all that is there."""
    try:
        if end is None:
            end = max(offset + path.stat().st_size for offset, path in list_segments(terminal))
        data = b"".join(read_log_blocks(terminal, max(start, end - _TAIL_BYTES), end))
    except (OSError, ValueError):
        return ""
    text = _ESCAPE_SEQUENCE.sub(b"", data).decode("utf-8", "replace")
    lines = text.replace("\r", "\n").split("\n")  # a progress bar's line is what it wrote last
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


MAX_JOB_LINES_BYTES = 1 << 18
"""A file of last lines that is longer is none that a host has written."""


def job_lines_file(terminal: Path) -> Path:
    """The file with the last line that each background command of a terminal printed to a file: a
    JSON object, last lines by the command's key."""
    return terminal / "job_lines.json"


def read_job_line(terminal: Path, key: str) -> str:
    """The last line that the running command `key` printed to a file; empty where none is known."""
    try:
        with job_lines_file(terminal).open("rb") as file:
            data = file.read(MAX_JOB_LINES_BYTES)
        return msgspec.json.decode(data, type=dict[str, str]).get(key, "")
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def terminals_with_log(terminals: Path) -> list[str]:
    """Names of the terminals that have a log; none where nothing can be read."""
    return sorted({path.parent.name for path in terminals.glob(f"*/{_SEGMENT_PREFIX}*")})


def is_terminal_name(name: str) -> bool:
    """Whether `name` stays within the folder of terminals: it may come from a record."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
