"""The judge's words: a text file with three parts and named gaps, which a user may copy and edit.

The parts are `system` (criteria and what is kept), `window` (how a window is laid out) and `again`
(what is added after an answer that could not be used). Gaps are filled in one pass, so that text
which is filled in can open no further gap.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from houston_shared.errors import ConfigurationError

PACKAGED = Path(__file__).with_name("template.md")
NEEDED = {
    "window": {"task", "scores", "guidance", "key", "steps", "judged"},
    "again": {"problem", "judged"},
}
"""Gaps that a part must have: without them a judge would not see what it judges."""
ALLOWED = {
    "system": frozenset[str](),
    "window": frozenset(NEEDED["window"] | {"limits", "outline"}),
    "again": frozenset(NEEDED["again"]),
}
_PART = re.compile(r"^=== (\w+) ===[ \t]*$", re.MULTILINE)
_GAP = re.compile(r"\{\{(\w+)\}\}")
_POINT = re.compile(r"^- `(\w+)`:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Template:
    """What a judge is told."""

    system: str
    window: str
    again: str
    digest: str
    """SHA-256 of the file, hex."""

    @property
    def version(self) -> str:
        """Short name of these words, for verdicts and manifests."""
        return self.digest[:8]

    @property
    def points(self) -> tuple[str, ...]:
        """Names of the criteria and of what is kept, in order."""
        return tuple(_POINT.findall(self.system))

    def message(self, gaps: Mapping[str, str]) -> str:
        """A window's message; gaps: by name, what stands there."""
        return _filled(self.window, gaps)

    def once_more(self, problem: str, judged: str) -> str:
        """What follows a message whose answer could not be used."""
        return _filled(self.again, {"problem": problem, "judged": judged})


def load(file: Path | None = None) -> Template:
    """The template in `file`, or the packaged one.

    Raises ConfigurationError that names the file and what is wrong with it.
    """
    place = file or PACKAGED
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no UTF-8 text"
        raise ConfigurationError(f"The judge's template {place} cannot be read: {why}.") from None
    return read(text, str(place))


def read(text: str, where: str) -> Template:
    """A template from its text; where: what to blame. Raises ConfigurationError."""
    _, *rest = _PART.split(text)
    parts = {name: part.strip() for name, part in zip(rest[::2], rest[1::2], strict=True)}
    if set(parts) != set(ALLOWED) or not all(parts.values()):
        raise _wrong(where, f"it needs the parts {_listed(ALLOWED)}, each once and with text")
    if len(rest) != 2 * len(ALLOWED):
        raise _wrong(where, "it has a part twice")
    for name, part in parts.items():
        gaps = set(_GAP.findall(part))
        if missing := NEEDED.get(name, set()) - gaps:
            raise _wrong(where, f"its part `{name}` lacks {_gaps(missing)}")
        if unknown := gaps - ALLOWED[name]:
            known = _gaps(ALLOWED[name]) or "none"
            raise _wrong(where, f"its part `{name}` has {_gaps(unknown)}; known there: {known}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Template(parts["system"], parts["window"], parts["again"], digest)


def _filled(text: str, gaps: Mapping[str, str]) -> str:
    return _GAP.sub(lambda found: gaps[found[1]], text)


def _wrong(where: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where} is no template of the judge: {why}.",
        "Nothing was judged.",
        "houston judge --print-template",
    )


def _listed(names: Mapping[str, frozenset[str]]) -> str:
    return ", ".join(f"`=== {name} ===`" for name in names)


def _gaps(names: set[str] | frozenset[str]) -> str:
    return ", ".join(f"{{{{{name}}}}}" for name in sorted(names))
