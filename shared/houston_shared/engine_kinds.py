"""The kinds of engines that a configuration may name: Houston's own, and registered ones."""

from collections.abc import Mapping
from typing import Protocol

from houston_shared.errors import ConfigurationError

KINDS = ("embedded", "vllm", "token", "chat", "script", "recorded")
"""Houston's own, which the daemon and the workers know each for itself."""


class _Named(Protocol):
    @property
    def kind(self) -> str: ...


def check_kinds(engines: Mapping[str, _Named], source: str) -> None:
    """Raise ConfigurationError for a kind that is none; source: the file that is to blame."""
    for name, engine in engines.items():
        if engine.kind in KINDS:
            continue
        from houston_shared import plugins  # 20 ms that nobody pays without such an engine

        others = plugins.names(plugins.ENGINES)
        if engine.kind not in others:
            raise ConfigurationError(
                f"{source}: `engines.{name}.kind` is {engine.kind!r}; allowed: "
                f"{', '.join((*KINDS, *others))}.",
                next="Install the package that brings it beside Houston, or correct the kind.",
            )
