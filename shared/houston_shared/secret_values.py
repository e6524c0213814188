"""Which values are secret in this process, and the one redactor that everything here uses.

Secret are values of environment variables that the configuration names or whose names look like
it, and such values in the environments that it gives to engines. The daemon decides (`install`)
and tells its children by `HOUSTON_SECRETS`; a process that was told nothing goes by the defaults.
"""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from houston_shared.config import Configuration, Secrets
from houston_shared.redaction import SHORTEST, Redactor

VARIABLE = "HOUSTON_SECRETS"


class _Told(msgspec.Struct, frozen=True):
    """What the daemon tells its children."""

    rules: Secrets
    given: dict[str, str]
    """Secrets of the configuration itself, by name."""


def install(config: Configuration) -> None:
    """Go by `config` from now on, in this process and in those that it starts."""
    found = rules(config)
    given = {
        name: value
        for engine in config.engines.values()
        for name, value in engine.environment.items()
        if _secret(name, value, found)
    }
    os.environ[VARIABLE] = msgspec.json.encode(_Told(found, given)).decode()
    redactor.cache_clear()


def rules(config: Configuration) -> Secrets:
    """The configuration's rules, with the variables that its engines and tools take keys from."""
    tools = config.tools
    keys = [e.api_key_env for e in config.engines.values()]
    keys += [name for e in config.engines.values() for name in e.headers_env.values()]
    keys += [tools.search.api_key_env, tools.multimodal.api_key_env, tools.browse.proxy_env]
    names = tuple(dict.fromkeys((*config.secrets.names, *filter(None, keys))))
    return msgspec.structs.replace(config.secrets, names=names)


@lru_cache(maxsize=1)
def redactor() -> Redactor:
    """The redactor of this process."""
    told = os.environ.get(VARIABLE)
    found = msgspec.json.decode(told, type=_Told) if told else _Told(Secrets(), {})
    return Redactor({**found.given, **values(os.environ, found.rules)}, found.rules.shapes)


def values(environment: Mapping[str, str], rules: Secrets) -> dict[str, str]:
    """The secrets of an environment by name."""
    return {
        name: value
        for name, value in environment.items()
        if name != VARIABLE and _secret(name, value, rules)
    }


def redact(text: str) -> str:
    """`text` without secrets (see `Redactor.text`)."""
    return redactor().text(text)


def redact_all(value: Any) -> Any:
    """Everything in `value` without secrets (see `Redactor.value`); exporters call this last."""
    return redactor().value(value)


def restored(text: str) -> str:
    """`text` with `[secret:NAME]` as the value again: only for an environment that a task gives."""
    return redactor().restored(text)


def too_short(environment: Mapping[str, str], rules: Secrets) -> list[str]:
    """Names of variables that hold secrets of too few characters to be taken out of text."""
    found = values(environment, rules)
    return sorted(name for name, value in found.items() if len(value.strip()) < SHORTEST)


def _secret(name: str, value: str, rules: Secrets) -> bool:
    if name in rules.ignore or not value:
        return False
    if name in rules.names:
        return True
    return any(fnmatchcase(name.upper(), p.upper()) for p in rules.patterns) and not _file(value)


def _file(value: str) -> bool:
    """Whether this is the place of a key and not a key."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False
