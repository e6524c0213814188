"""Secrets out of text: known values, and the shapes of well-known keys, become `[secret:NAME]`.

Knows values and shapes, not where they come from (`secret_values`) nor where text goes. Found is
also what a cut has left of a known value: its beginning or its end, from `PART` characters on. Not
found is a value in another encoding (Base64, spaces between), and one shorter than `SHORTEST`.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

SHORTEST = 8
"""Characters of the shortest value that is redacted: a shorter one is a word like any other."""
PART = 16
"""So many first or last characters of a long value give it away."""
_LINE = 16
"""Characters of the shortest line of a value of several lines that is looked for alone."""


class Shape(NamedTuple):
    """How keys of one kind look."""

    name: str
    marker: str
    """Stands in every such key and hardly elsewhere; text without it is not searched any further:
    a `find` is 50 times as fast as the pattern."""
    pattern: re.Pattern[str]


def _shape(name: str, marker: str, pattern: str) -> Shape:
    return Shape(name, marker, re.compile(pattern, re.DOTALL))


_PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"
SHAPES = (
    _shape("AWS_KEY_ID", "AKIA", r"(?<![0-9A-Za-z])AKIA[0-9A-Z]{16}(?![0-9A-Za-z])"),
    _shape("AWS_KEY_ID", "ASIA", r"(?<![0-9A-Za-z])ASIA[0-9A-Z]{16}(?![0-9A-Za-z])"),
    *(
        _shape("GITHUB_TOKEN", f"gh{kind}_", rf"(?<![0-9A-Za-z])gh{kind}_[0-9A-Za-z]{{36,255}}")
        for kind in "pousr"
    ),
    _shape("GITHUB_TOKEN", "github_pat_", r"github_pat_[0-9A-Za-z_]{22,255}"),
    _shape("GITLAB_TOKEN", "glpat-", r"glpat-[0-9A-Za-z_-]{20,255}"),
    _shape("GOOGLE_KEY", "AIza", r"(?<![0-9A-Za-z])AIza[0-9A-Za-z_-]{35}"),
    _shape("HF_TOKEN", "hf_", r"(?<![0-9A-Za-z])hf_[0-9A-Za-z]{30,255}"),
    _shape("JWT", ".eyJ", r"eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{8,4096}"),
    _shape(
        "PRIVATE_KEY",
        "PRIVATE KEY-----",
        # Whole; or, where its end was cut off, as many lines of Base64 as follow.
        rf"{_PEM}(?:.{{0,12000}}?-----END [A-Z0-9 ]*PRIVATE KEY-----"
        r"|(?:(?:\s|\\n|\\r)*[^\n]{0,16}?[0-9A-Za-z+/=]{16,})*)",
    ),
    _shape("SK_KEY", "sk-", r"(?<![\w-])sk-(?=[A-Za-z_-]{0,64}[0-9])[\w-]{20,255}"),
    *(
        _shape("SLACK_TOKEN", f"xox{kind}-", rf"(?<![0-9A-Za-z])xox{kind}-[0-9A-Za-z-]{{10,255}}")
        for kind in "abeoprs"
    ),
)
"""Keys that are known by their looks: AWS, GitHub, GitLab, Google, Hugging Face, JSON web tokens,
private key blocks, OpenAI's and Anthropic's `sk-`, Slack. A new kind is one more line here."""

_PLACEHOLDER = re.compile(r"\[secret:([\w.-]{1,128})\]")


class _Needle(NamedTuple):
    """One way in which a value may be written."""

    name: str
    whole: str
    first: str
    last: str


class _Span(NamedTuple):
    start: int
    end: int
    name: str


class Redactor:
    """Takes secrets out of text. The same text gives the same text, and redacting twice is once."""

    def __init__(self, values: Mapping[str, str], shapes: bool = True) -> None:
        """values: secrets by the name they are shown under; short ones are passed over.

        White space around one is no part of the secret: who reads it from a file strips it.
        """
        self.names = tuple(sorted(name for name in values if len(values[name].strip()) >= SHORTEST))
        """What is known by its value."""
        self._values = {name: values[name] for name in self.names}
        self._needles = tuple(_needles(self._values))
        self._shapes = SHAPES if shapes else ()
        self._written = frozenset((*self.names, *(shape.name for shape in SHAPES)))

    def text(self, text: str) -> str:
        """`text` with every secret replaced by `[secret:NAME]`; itself where there is none."""
        spans = [span for needle in self._needles for span in _find(text, needle)]
        for shape in self._shapes:
            if shape.marker in text:
                spans += [_Span(*m.span(), shape.name) for m in shape.pattern.finditer(text)]
        return _replaced(text, spans, self._written) if spans else text

    def restored(self, text: str) -> str:
        """`text` with `[secret:NAME]` as the value again, where the name is known here."""
        return _PLACEHOLDER.sub(lambda m: self._values.get(m[1], m[0]), text)

    def value(self, value: Any) -> Any:
        """The same for all text in lists, tuples and dictionaries, keys too. For exporters."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.value(key): self.value(one) for key, one in value.items()}
            case list():
                return [self.value(one) for one in value]
            case tuple():
                return tuple(self.value(one) for one in value)
            case _:
                return value


def _needles(values: Mapping[str, str]) -> Iterator[_Needle]:
    """Each value as it is, as JSON and URLs write it, and line by line."""
    seen: set[str] = set()
    bare = {name: value.strip() for name, value in values.items()}
    for name, value in sorted(bare.items(), key=lambda item: (-len(item[1]), item[0])):
        forms = [value, json.dumps(value)[1:-1], quote(value, safe="")]
        forms += [line.strip() for line in value.splitlines() if len(line.strip()) >= _LINE]
        for form in forms:
            if form not in seen:
                seen.add(form)
                part = min(PART, max(SHORTEST, len(form) * 2 // 3))
                yield _Needle(name, form, form[:part], form[-part:])


def placeholders(text: str) -> list[str]:
    """Names that stand in `text` as `[secret:NAME]`."""
    return _PLACEHOLDER.findall(text)


def _find(text: str, needle: _Needle) -> Iterator[_Span]:
    """Where the value stands, whole or as much of its beginning or end as is there."""
    whole, size = needle.whole, len(needle.first)
    at = text.find(needle.first)
    while at >= 0:
        end = at + size
        while end < len(text) and end - at < len(whole) and text[end] == whole[end - at]:
            end += 1
        yield _Span(at, end, needle.name)
        at = text.find(needle.first, end)
    at = text.find(needle.last)
    while at >= 0:
        start, back = at, len(whole) - size
        while start > 0 and back > 0 and text[start - 1] == whole[back - 1]:
            start, back = start - 1, back - 1
        yield _Span(start, at + size, needle.name)
        at = text.find(needle.last, at + size)


def _replaced(text: str, spans: list[_Span], written: Collection[str]) -> str:
    """`text` with joined spans replaced; what an earlier redaction wrote stays as it is.

    written: the names it writes: a value in such brackets, printed by a program, is none.
    """
    kept = [match.span() for match in _PLACEHOLDER.finditer(text) if match[1] in written]
    parts: list[str] = []
    done = 0
    for start, end, name in _joined(spans):
        near = bisect_right(kept, (start, len(text))) - 1
        if near >= 0 and end <= kept[near][1]:
            continue
        parts += [text[done:start], f"[secret:{name}]"]
        done = end
    return "".join([*parts, text[done:]])


def _joined(spans: list[_Span]) -> Iterator[_Span]:
    """Overlapping spans as one, under the name of the first; a known value before a shape."""
    current: _Span | None = None
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if current is not None and span.start < current.end:
            current = _Span(current.start, max(current.end, span.end), current.name)
            continue
        if current is not None:
            yield current
        current = span
    if current is not None:
        yield current
