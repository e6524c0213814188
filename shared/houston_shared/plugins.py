"""What packages register with Houston by entry point: environments, engines, dialects, signals and
rules.

Houston's own environments and dialects stand in the same table, in its `pyproject.toml`, and win
over others of their name. Only what is asked for is imported. This module knows no group's meaning.
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any

from houston_shared.errors import ConfigurationError

ENVIRONMENT_GROUP = "houston.environments"
ENGINE_GROUP = "houston.engines"
DIALECT_GROUP = "houston.dialects"
SIGNAL_GROUP = "houston.signals"
RULE_GROUP = "houston.rules"
_OWN_PACKAGE = "houston-agents"


def plugin_names(group: str) -> list[str]:
    """All names that are registered in `group`, Houston's own first; nothing is imported."""
    points = (*_own_entry_points(group), *entry_points(group=group))
    return list(dict.fromkeys(point.name for point in points))


def load_plugin(group: str, name: str, kind: str) -> Any:
    """The object that is registered as `name`.

    kind: what it is, in words. Raises ConfigurationError that lists what there is, or that says
    which package cannot be imported and why.
    """
    point = _find_entry_point(group, name)
    if point is None:
        names = ", ".join(plugin_names(group)) or "none"
        raise ConfigurationError(
            f"There is no {kind} {name!r}; there are: {names}.",
            next="Install the package that provides it next to Houston, or correct the name.",
        )
    try:
        return point.load()
    except Exception as problem:
        package = point.dist.name if point.dist else "a package"
        cause = " ".join(str(problem).split())[:300]
        raise ConfigurationError(
            f"The {kind} {name!r} ({point.value}, of {package}) cannot be imported: "
            f"{type(problem).__name__}{f': {cause}' if cause else ''}.",
            next=f"Repair or reinstall {package}.",
        ) from problem


def _find_entry_point(group: str, name: str) -> EntryPoint | None:
    """Houston's own first: all packages are looked at (12 ms) only for what others bring."""
    for point in _own_entry_points(group):
        if point.name == name:
            return point
    return next(iter(entry_points(group=group, name=name)), None)


def _own_entry_points(group: str) -> Iterator[EntryPoint]:
    try:
        yield from distribution(_OWN_PACKAGE).entry_points.select(group=group)
    except PackageNotFoundError:  # run from its sources
        return
