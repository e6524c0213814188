"""Whether a Dockerfile only copies files, and which: then the ordinary sandbox can replace it.

Accepts FROM, WORKDIR, COPY and ADD of local files into the working folder, ENV, and instructions
that do not affect files (LABEL, CMD, EXPOSE, …). Everything else, above all RUN, is trouble: then
only a build shows what the image holds. Nothing is built or run here.
"""

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from houston_shared.errors import HoustonError

_SILENT = frozenset(
    {"LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "SHELL"}
)
"""Instructions that say nothing of the files in the image."""


@dataclass(frozen=True, slots=True)
class PlainCopy:
    """One COPY into the working folder."""

    source: str
    """Below the Dockerfile's folder; may be a pattern."""
    target: str
    """Below the working folder."""
    is_folder: bool
    """Whether the target is a folder that files go into."""


@dataclass(slots=True)
class PlainDockerfile:
    """What was read."""

    base: str = ""
    """The image that it begins with."""
    workdir: str = ""
    """Absolute; empty for none."""
    copies: list[PlainCopy] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    apart: str = ""
    """What is copied into this folder is passed over."""
    trouble: str = ""
    """What of it only an engine can do, a few words; empty where it is plain."""


def read_plain_dockerfile(file: Path, apart: str = "") -> PlainDockerfile:
    """Read it; `trouble` names the first instruction that is not plain. Raises HoustonError.

    apart: a folder beside the working folder; what is copied there is passed over.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise HoustonError(f"{file} cannot be read: {problem}.") from problem
    read = PlainDockerfile(apart=apart)
    if (file.parent / ".dockerignore").exists():
        read.trouble = ".dockerignore"
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        try:
            _take(read, word.upper(), rest.strip())
        except ValueError:  # quotes that do not end
            read.trouble = line[:60]
        if read.trouble:
            break
    copied_elsewhere = bool(read.copies) and not read.workdir
    if not read.trouble and copied_elsewhere:
        read.trouble = "COPY without a WORKDIR"
    return read


def _instructions(text: str) -> list[str]:
    """Its lines without comments, those that go on joined."""
    lines: list[str] = []
    going_on = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.endswith("\\"):
            going_on += f"{stripped[:-1]} "
            continue
        lines.append(f"{going_on}{stripped}")
        going_on = ""
    return [*lines, *([going_on] if going_on else [])]


def _take(read: PlainDockerfile, word: str, rest: str) -> None:
    match word:
        case "FROM" if not read.base:
            words = (word for word in rest.split() if not word.startswith("--"))
            read.base = next(words, "")
        case "WORKDIR":
            place = PurePosixPath(read.workdir or "/", *shlex.split(rest))
            if read.copies and str(place) != read.workdir:
                read.trouble = "WORKDIR after COPY"
            read.workdir = str(place)
        case "ENV":
            _take_variables(read, rest)
        case "COPY" | "ADD":
            _take_copy(read, word, rest)
        case "USER" if rest in ("root", "0"):
            pass
        case _ if word in _SILENT:
            pass
        case _:
            read.trouble = f"{word} {rest}"[:60]


def _take_variables(read: PlainDockerfile, rest: str) -> None:
    words = shlex.split(rest)
    if words and "=" not in words[0]:  # the old form: ENV NAME value
        words = [f"{words[0]}={' '.join(words[1:])}"]
    for pair in words:
        name, equals, value = pair.partition("=")
        if not equals or "$" in value:
            read.trouble = f"ENV {rest}"[:60]
            return
        read.variables[name] = value


def _take_copy(read: PlainDockerfile, word: str, rest: str) -> None:
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    words = [str(part) for part in words if not str(part).startswith("--chmod")]
    *sources, target = words if len(words) > 1 else ("", "")
    place = PurePosixPath(read.workdir or "/", target)
    is_inside = (
        bool(read.workdir) and place.is_relative_to(read.workdir) and ".." not in place.parts
    )
    is_local = all(
        source and "://" not in source and not source.startswith("--") and ".." not in source
        for source in sources
    )
    if is_local and read.apart and place.is_relative_to(read.apart):
        return
    packed = word == "ADD" and any(".tar" in source or ".tgz" in source for source in sources)
    if not is_inside or not is_local or packed:
        read.trouble = f"{word} {rest}"[:60]
        return
    below = str(place.relative_to(read.workdir))
    into_folder = target.endswith("/") or target == "." or below == "." or len(sources) > 1
    read.copies += [PlainCopy(source.lstrip("/") or ".", below, into_folder) for source in sources]
