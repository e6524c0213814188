"""The URLs of `[notify] urls`: fills in environment variables, and finds the secret parts of a URL.

A URL of Apprise may have its keys in any part: user, password, host, path or query. This module
knows neither the messages nor which services there are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from houston_shared.errors import ConfigurationError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SEPARATORS = re.compile(r"[/?&=@:#,]+")
_HOST = re.compile(r"localhost|\d+(?:\.\d+){3}|[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_MIN_KEY_CHARACTERS = 12
"""Characters of the shortest part that is taken for a key by its looks."""


def expand_notification_url(url: str, environment: Mapping[str, str]) -> str:
    """`url` with `${NAME}` replaced. Raises ConfigurationError for a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        if text := environment.get(match[1], "").strip():
            return text
        raise ConfigurationError(
            f"`notify.urls` names the variable {match[1]}, which is not set here.",
            "No message goes there.",
            f"export {match[1]}=…; houston daemon restart",
        )

    return _VARIABLE.sub(value, url)


def url_parts(url: str) -> list[str]:
    """Everything behind the scheme that may be private, decoded too; a host with a dot, and a port,
    are not."""
    _, _, rest = url.partition("://")
    before, at, behind = rest.partition("@")
    address = behind if at and "/" not in before else rest
    host = _SEPARATORS.split(address, maxsplit=1)[0]
    if _HOST.fullmatch(host):
        rest = re.sub(rf"{re.escape(host)}(?::\d+)?(?=[/?]|\Z)", "", rest, count=1)
    parts = _SEPARATORS.split(rest)
    decoded = (unquote(part) for part in parts)
    return list(dict.fromkeys(part for part in (*parts, *decoded) if part))


def notification_secrets(
    urls: Sequence[str], environment: Mapping[str, str] = {}
) -> Iterator[tuple[str, str]]:
    """Keys and passwords in these URLs, by the name that they are shown under.

    Only what looks like one: common words, such as the name of a service or a topic, stand in
    anybody's text. A URL whose variable is not set has none.
    """
    for number, url in enumerate(urls, 1):
        try:
            whole = expand_notification_url(url, environment)
        except ConfigurationError:  # said where messages are sent
            continue
        password = _password(whole)
        keys = [part for part in url_parts(whole) if part == password or _looks_like_key(part)]
        for place, key in enumerate(keys, 1):
            yield f"NOTIFY_URL_{number}_{place}", key


def _password(url: str) -> str:
    login, at, _ = url.partition("://")[2].partition("@")
    return unquote(login.partition(":")[2]) if at and "/" not in login else ""


def _looks_like_key(part: str) -> bool:
    """Whether it is long and mixed, as what a machine made."""
    mixed = re.search(r"\d", part) and re.search(r"[A-Za-z]", part)
    return len(part) >= _MIN_KEY_CHARACTERS and bool(mixed)
