"""The environments that are installed, by name."""

from functools import lru_cache

from houston_daemon.environments.kind import EnvironmentKind
from houston_shared import plugins
from houston_shared.errors import ConfigurationError


@lru_cache(maxsize=32)
def kind(name: str) -> EnvironmentKind:
    """The environment called `name`. Raises ConfigurationError (see `plugins.load`)."""
    found = plugins.load(plugins.ENVIRONMENTS, name, "environment")
    if not isinstance(found, EnvironmentKind):
        raise ConfigurationError(
            f"The environment {name!r} is registered as a {type(found).__name__}, "
            "not as an EnvironmentKind."
        )
    return found
