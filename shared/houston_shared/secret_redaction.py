"""Takes secrets out of text: known values, and the shapes of well-known keys, become
`[secret:NAME]`.

The redactor knows values and shapes. The code below it decides which values are secret in this
process: environment variables that the configuration names or whose names suggest a secret, such
values in the environments that it gives to engines, and the keys in the URLs that messages go to.
The daemon decides (`install_secrets`) and tells its children by `HOUSTON_SECRETS`; other processes
use the defaults. The beginning or the end of a known value that was cut is found, too. Not found is
a value in another encoding (Base64, spaces between), or one shorter than `MIN_SECRET_CHARACTERS`.
Where text goes is not known here.
"""

import json
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from houston_shared.config import Configuration
from houston_shared.config_sections import STORE_KEYS, SecretSettings
from houston_shared.notification_urls import notification_secrets

MIN_SECRET_CHARACTERS = 8
"""Characters of the shortest value that is redacted: a shorter one is a word like any other."""
GIVEAWAY_CHARACTERS = 16
"""So many first or last characters of a long value give it away."""
_SHORTEST_LINE = 16
"""Characters of the shortest line of a value of several lines that is looked for alone."""


class KeyShape(NamedTuple):
    """How keys of one kind look."""

    name: str
    marker: str
    """Stands in every such key and hardly elsewhere; text without it is not searched any further:
    a `find` is 50 times as fast as the pattern."""
    pattern: re.Pattern[str]


def _key_shape(name: str, marker: str, pattern: str) -> KeyShape:
    return KeyShape(name, marker, re.compile(pattern, re.DOTALL))


_PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"
KEY_SHAPES = (
    _key_shape("AWS_KEY_ID", "AKIA", r"(?<![0-9A-Za-z])AKIA[0-9A-Z]{16}(?![0-9A-Za-z])"),
    _key_shape("AWS_KEY_ID", "ASIA", r"(?<![0-9A-Za-z])ASIA[0-9A-Z]{16}(?![0-9A-Za-z])"),
    *(
        _key_shape("GITHUB_TOKEN", f"gh{kind}_", rf"(?<![0-9A-Za-z])gh{kind}_[0-9A-Za-z]{{36,255}}")
        for kind in "pousr"
    ),
    _key_shape("GITHUB_TOKEN", "github_pat_", r"github_pat_[0-9A-Za-z_]{22,255}"),
    _key_shape("GITLAB_TOKEN", "glpat-", r"glpat-[0-9A-Za-z_-]{20,255}"),
    _key_shape("GOOGLE_KEY", "AIza", r"(?<![0-9A-Za-z])AIza[0-9A-Za-z_-]{35}"),
    _key_shape("HF_TOKEN", "hf_", r"(?<![0-9A-Za-z])hf_[0-9A-Za-z]{30,255}"),
    _key_shape("JWT", ".eyJ", r"eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{8,4096}"),
    _key_shape(
        "PRIVATE_KEY",
        "PRIVATE KEY-----",
        # Whole; or, where its end was cut off, as many lines of Base64 as follow.
        rf"{_PEM}(?:.{{0,12000}}?-----END [A-Z0-9 ]*PRIVATE KEY-----"
        r"|(?:(?:\s|\\n|\\r)*[^\n]{0,16}?[0-9A-Za-z+/=]{16,})*)",
    ),
    _key_shape("SK_KEY", "sk-", r"(?<![\w-])sk-(?=[A-Za-z_-]{0,64}[0-9])[\w-]{20,255}"),
    *(
        _key_shape(
            "SLACK_TOKEN", f"xox{kind}-", rf"(?<![0-9A-Za-z])xox{kind}-[0-9A-Za-z-]{{10,255}}"
        )
        for kind in "abeoprs"
    ),
)
"""Keys that are known by their looks: AWS, GitHub, GitLab, Google, Hugging Face, JSON web tokens,
private key blocks, OpenAI's and Anthropic's `sk-`, Slack. A new kind is one more line here."""

_PLACEHOLDER = re.compile(r"\[secret:([\w.-]{1,128})\]")


class _SecretSpelling(NamedTuple):
    """One way in which a value may be written."""

    name: str
    whole: str
    first: str
    last: str


class _SecretSpan(NamedTuple):
    start: int
    end: int
    name: str


class Redactor:
    """Takes secrets out of text. The same text gives the same text, and redacting twice is once."""

    def __init__(self, values: Mapping[str, str], shapes: bool = True) -> None:
        """values: secrets by the name they are shown under; short ones are passed over.

        White space around one is no part of the secret: who reads it from a file strips it.
        """
        self.names = tuple(
            sorted(name for name in values if len(values[name].strip()) >= MIN_SECRET_CHARACTERS)
        )
        """What is known by its value."""
        self._values = {name: values[name] for name in self.names}
        self._needles = tuple(_secret_spellings(self._values))
        self._shapes = KEY_SHAPES if shapes else ()
        self._written = frozenset((*self.names, *(shape.name for shape in KEY_SHAPES)))

    def text(self, text: str) -> str:
        """`text` with every secret replaced by `[secret:NAME]`; itself where there is none."""
        spans = [span for needle in self._needles for span in _find_spelling(text, needle)]
        for shape in self._shapes:
            if shape.marker in text:
                spans += [_SecretSpan(*m.span(), shape.name) for m in shape.pattern.finditer(text)]
        return _replace_spans(text, spans, self._written) if spans else text

    def restored(self, text: str) -> str:
        """`text` with `[secret:NAME]` as the value again, where the name is known here."""
        return _PLACEHOLDER.sub(lambda m: self._values.get(m[1], m[0]), text)

    def value(self, value: Any) -> Any:
        """The same for all text in lists, tuples and dictionaries, keys too. For exporters."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.value(key): self.value(item) for key, item in value.items()}
            case list():
                return [self.value(item) for item in value]
            case tuple():
                return tuple(self.value(item) for item in value)
            case _:
                return value


def _secret_spellings(values: Mapping[str, str]) -> Iterator[_SecretSpelling]:
    """Each value as it is, as JSON and URLs write it, and line by line."""
    spellings: set[str] = set()
    bare = {name: value.strip() for name, value in values.items()}
    for name, value in sorted(bare.items(), key=lambda item: (-len(item[1]), item[0])):
        forms = [value, json.dumps(value)[1:-1], quote(value, safe="")]
        forms += [
            line.strip() for line in value.splitlines() if len(line.strip()) >= _SHORTEST_LINE
        ]
        for form in forms:
            if form not in spellings:
                spellings.add(form)
                part = min(GIVEAWAY_CHARACTERS, max(MIN_SECRET_CHARACTERS, len(form) * 2 // 3))
                yield _SecretSpelling(name, form, form[:part], form[-part:])


def find_placeholders(text: str) -> list[str]:
    """Names that stand in `text` as `[secret:NAME]`."""
    return _PLACEHOLDER.findall(text)


def _find_spelling(text: str, needle: _SecretSpelling) -> Iterator[_SecretSpan]:
    """Where the value stands, whole or as much of its beginning or end as is there."""
    whole_text, size = needle.whole, len(needle.first)
    at = text.find(needle.first)
    while at >= 0:
        end = at + size
        while end < len(text) and end - at < len(whole_text) and text[end] == whole_text[end - at]:
            end += 1
        yield _SecretSpan(at, end, needle.name)
        at = text.find(needle.first, end)
    at = text.find(needle.last)
    while at >= 0:
        start, back = at, len(whole_text) - size
        while start > 0 and back > 0 and text[start - 1] == whole_text[back - 1]:
            start, back = start - 1, back - 1
        yield _SecretSpan(start, at + size, needle.name)
        at = text.find(needle.last, at + size)


def _replace_spans(text: str, spans: list[_SecretSpan], written: Collection[str]) -> str:
    """`text` with joined spans replaced; what an earlier redaction wrote stays as it is.

    written: the names it writes: a value in such brackets, printed by a program, is none.
    """
    placeholders = [match.span() for match in _PLACEHOLDER.finditer(text) if match[1] in written]
    parts: list[str] = []
    position = 0
    for start, end, name in _join_spans(spans):
        near = bisect_right(placeholders, (start, len(text))) - 1
        if near >= 0 and end <= placeholders[near][1]:
            continue
        parts += [text[position:start], f"[secret:{name}]"]
        position = end
    return "".join([*parts, text[position:]])


def _join_spans(spans: list[_SecretSpan]) -> Iterator[_SecretSpan]:
    """Overlapping spans as one, under the name of the first; a known value before a shape."""
    current: _SecretSpan | None = None
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if current is not None and span.start < current.end:
            current = _SecretSpan(current.start, max(current.end, span.end), current.name)
            continue
        if current is not None:
            yield current
        current = span
    if current is not None:
        yield current


SECRETS_VARIABLE = "HOUSTON_SECRETS"


class _InheritedSecrets(msgspec.Struct, frozen=True):
    """What the daemon tells its children."""

    rules: SecretSettings
    values: dict[str, str]
    """Secrets of the configuration itself, by name."""


def install_secrets(config: Configuration) -> None:
    """Go by `config` from now on, in this process and in those that it starts."""
    rules = secret_rules(config)
    values = {
        name: value
        for engine in config.engines.values()
        for name, value in engine.environment.items()
        if _is_secret(name, value, rules)
    }
    values |= notification_secrets(config.notify.urls, os.environ)
    os.environ[SECRETS_VARIABLE] = msgspec.json.encode(_InheritedSecrets(rules, values)).decode()
    process_redactor.cache_clear()


def secret_rules(config: Configuration) -> SecretSettings:
    """The configuration's rules, with the variables that its engines and tools take keys from."""
    tools = config.tools
    keys = [e.api_key_env for e in config.engines.values()]
    keys += [name for e in config.engines.values() for name in e.headers_env.values()]
    keys += [tools.search.api_key_env, tools.multimodal.api_key_env, tools.browse.proxy_env]
    keys += STORE_KEYS if config.artifacts.url else ()
    names = tuple(dict.fromkeys((*config.secrets.names, *filter(None, keys))))
    return msgspec.structs.replace(config.secrets, names=names)


@lru_cache(maxsize=1)
def process_redactor() -> Redactor:
    """The redactor of this process."""
    inherited = _InheritedSecrets(SecretSettings(), {})
    if text := os.environ.get(SECRETS_VARIABLE):
        inherited = msgspec.json.decode(text, type=_InheritedSecrets)
    own = find_secret_values(os.environ, inherited.rules)
    return Redactor({**inherited.values, **own}, inherited.rules.shapes)


def find_secret_values(environment: Mapping[str, str], rules: SecretSettings) -> dict[str, str]:
    """The secrets of an environment by name."""
    return {
        name: value
        for name, value in environment.items()
        if name != SECRETS_VARIABLE and _is_secret(name, value, rules)
    }


def redact(text: str) -> str:
    """`text` without secrets (see `Redactor.text`)."""
    return process_redactor().text(text)


def redact_all(value: Any) -> Any:
    """Everything in `value` without secrets (see `Redactor.value`); exporters call this last."""
    return process_redactor().value(value)


def restore_secrets(text: str) -> str:
    """`text` with `[secret:NAME]` as the value again: only for an environment that a task gives."""
    return process_redactor().restored(text)


def too_short_secret_names(environment: Mapping[str, str], rules: SecretSettings) -> list[str]:
    """Names of variables that hold secrets of too few characters to be taken out of text."""
    secrets = find_secret_values(environment, rules)
    return sorted(
        name for name, value in secrets.items() if len(value.strip()) < MIN_SECRET_CHARACTERS
    )


def _is_secret(name: str, value: str, rules: SecretSettings) -> bool:
    if name in rules.ignore or not value:
        return False
    if name in rules.names:
        return True
    return any(fnmatchcase(name.upper(), p.upper()) for p in rules.patterns) and not _is_key_file(
        value
    )


def _is_key_file(value: str) -> bool:
    """Whether this is the place of a key and not a key."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False
