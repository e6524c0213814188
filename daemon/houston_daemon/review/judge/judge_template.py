"""The words of a judge: text files with named parts and gaps, which a user may copy and edit.

A `TemplateForm` says which parts a file has and which gaps each must and may have; the judge of
steps has one, and the rubric of decisions another.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from houston_shared.errors import ConfigurationError, unreadable_as_error

_PART_HEADER = re.compile(r"^=== (\w+) ===[ \t]*$", re.MULTILINE)
_GAP = re.compile(r"\{\{(\w+)\}\}")
_CRITERION = re.compile(r"^- `(\w+)`:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """What a file of words must be."""

    name: str
    """As it is called: `template of the judge`."""
    required: Mapping[str, frozenset[str]]
    """By part, the gaps that it must have: without them a judge would not see what it judges."""
    optional: Mapping[str, frozenset[str]]
    """By part, gaps that it may have as well."""
    packaged: Path
    effect: str
    """What then did not happen: `Nothing was judged.`"""
    print_command: str
    """Writes out the packaged one."""

    def read(self, file: Path | None) -> str:
        """The text of a file, or of the packaged one. Raises ConfigurationError."""
        place = file or self.packaged
        with unreadable_as_error(f"The {self.name} {place}", self.effect, error=ConfigurationError):
            return place.read_text(encoding="utf-8")

    def parts(self, text: str, where: str) -> dict[str, str]:
        """By name the parts of a text; where: what to blame. Raises ConfigurationError."""
        _, *rest = _PART_HEADER.split(text)
        parts = {name: part.strip() for name, part in zip(rest[::2], rest[1::2], strict=True)}
        if set(parts) != set(self.required) or not all(parts.values()):
            named = ", ".join(f"`=== {name} ===`" for name in self.required)
            raise self._error(where, f"it needs the parts {named}, each once and with text")
        if len(rest) != 2 * len(self.required):
            raise self._error(where, "it has a part twice")
        for name, part in parts.items():
            gaps, required = set(_GAP.findall(part)), self.required[name]
            allowed = required | self.optional.get(name, frozenset())
            if missing := required - gaps:
                raise self._error(where, f"its part `{name}` lacks {_listed_gaps(missing)}")
            if unknown := gaps - allowed:
                allowed_gaps = _listed_gaps(allowed) or "none"
                raise self._error(
                    where,
                    f"its part `{name}` has {_listed_gaps(unknown)}; known there: {allowed_gaps}",
                )
        return parts

    def _error(self, where: str, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"{where} is not a valid {self.name}: {reason}.", self.effect, self.print_command
        )


def template_digest(text: str) -> str:
    """SHA-256 of a file's text, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def fill_gaps(text: str, gaps: Mapping[str, str]) -> str:
    """The text with what stands in each of its gaps."""
    return _GAP.sub(lambda gap: gaps[gap[1]], text)


def _listed_gaps(names: Iterable[str]) -> str:
    return ", ".join(f"{{{{{name}}}}}" for name in sorted(names))


JUDGE_FORM = TemplateForm(
    name="template of the judge",
    required={
        "system": frozenset(),
        "window": frozenset({"task", "scores", "guidance", "key", "steps", "judged"}),
        "again": frozenset({"problem", "judged"}),
    },
    optional={"window": frozenset({"limits", "outline"})},
    packaged=Path(__file__).with_name("judge_instructions.md"),
    effect="Nothing was judged.",
    print_command="houston judge --print-template",
)


@dataclass(frozen=True, slots=True)
class JudgeTemplate:
    """What a judge of steps is told."""

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
    def criteria(self) -> tuple[str, ...]:
        """Names of the criteria and of what is kept, in order."""
        return tuple(_CRITERION.findall(self.system))

    def message(self, gaps: Mapping[str, str]) -> str:
        """A window's message; gaps: by name, what stands there."""
        return fill_gaps(self.window, gaps)

    def retry_message(self, problem: str, judged: str) -> str:
        """What follows a message whose answer could not be used."""
        return fill_gaps(self.again, {"problem": problem, "judged": judged})


def load_template(file: Path | None = None) -> JudgeTemplate:
    """The template in `file`, or the packaged one.

    Raises ConfigurationError that names the file and what is wrong with it.
    """
    return parse_template(JUDGE_FORM.read(file), str(file or JUDGE_FORM.packaged))


def parse_template(text: str, where: str) -> JudgeTemplate:
    """A template from its text; where: what to blame. Raises ConfigurationError."""
    parts = JUDGE_FORM.parts(text, where)
    return JudgeTemplate(parts["system"], parts["window"], parts["again"], template_digest(text))
