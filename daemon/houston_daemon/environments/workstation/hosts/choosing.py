"""How an agent names a host: an argument `host` of command and file actions, where there are
several. A task with one host has the shorter schemas.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.workstation.command.actions import (
    CloseAllSessions,
    CommandAction,
    ListSessions,
)
from houston_daemon.environments.workstation.files.actions import FileAction

ALL = "all"
"""Every host; for the actions that list and close sessions."""
EVERYWHERE = (ListSessions, CloseAllSessions)


def on_hosts(action: type[Arguments], names: Sequence[str]) -> type[Arguments]:
    """The action as a task with these hosts offers it; the first is meant when none is named."""
    if len(names) < 2 or not issubclass(action, CommandAction | FileAction):
        return action
    choices = (ALL, *names) if issubclass(action, EVERYWHERE) else tuple(names)
    kind = Annotated[Literal[choices], msgspec.Meta(description="The machine.")]  # type: ignore[valid-type]
    made = msgspec.defstruct(
        action.__name__,
        [("host", kind, choices[0])],
        bases=(action,),
        namespace={"__doc__": action.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    assert issubclass(made, Arguments)
    return made


def without_host(arguments: dict[str, Any], action: type[Arguments]) -> Arguments:
    """The typed arguments of `action` itself."""
    return msgspec.convert({k: v for k, v in arguments.items() if k != "host"}, action)
