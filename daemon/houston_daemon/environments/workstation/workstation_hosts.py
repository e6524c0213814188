"""The hosts of one rollout, the workstation's actions on each, and how an agent names one.

A call whose host is away, or whose worker ended, gets an honest observation here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Failed, Interrupted, Observation
from houston_daemon.environments.workstation.command_actions import CommandActions
from houston_daemon.environments.workstation.command_observations import SessionChange, SessionList
from houston_daemon.environments.workstation.file_actions import FileActions
from houston_daemon.environments.workstation.parse_sources import LocalDocuments
from houston_daemon.environments.workstation.remote_documents import RemoteDocuments
from houston_daemon.environments.workstation.remote_file_actions import RemoteFileActions
from houston_daemon.environments.workstation.session_records import SessionRecords
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.environments.workstation_actions import (
    CloseAllSessions,
    CommandAction,
    FileAction,
    ListSessions,
    is_known_to_write,
)
from houston_daemon.hosts.host_protocol import HostAway, RolloutHost
from houston_daemon.hosts.resource_limits import LimitHit
from houston_shared.records import EVALUATION_CALL, ToolCall


@dataclass(frozen=True, slots=True)
class WorkstationHost:
    """One host, and what is done on it."""

    host: RolloutHost
    state: Callable[[], WorkstationState]
    sessions: SessionRecords
    commands: CommandActions
    files: FileActions | RemoteFileActions
    documents: LocalDocuments | RemoteDocuments


class WorkstationHosts:
    """The hosts of one rollout, in the task's order."""

    def __init__(self, first: WorkstationHost, *other_hosts: WorkstationHost) -> None:
        self.first = first
        self._places = {place.host.name: place for place in (first, *other_hosts)}

    def __iter__(self) -> Iterator[WorkstationHost]:
        return iter(self._places.values())

    def of(self, arguments: Mapping[str, Any]) -> WorkstationHost:
        """The host that the arguments of a call name."""
        return self._places.get(str(arguments.get("host", "")), self.first)

    def hear(self, step: int, call: ToolCall) -> None:
        """The agent asks for something in a step."""
        request = "\n".join(
            str(value) for name, value in call.arguments.items() if name != "content"
        )
        for place in self:
            place.sessions.jobs.hear(step, request)

    async def running(self) -> tuple[str, ...] | None:
        """Sessions in which a command runs now; None where a host cannot say."""
        sessions: list[str] = []
        for place in self:
            names = await place.sessions.running()
            if names is None:
                return None
            is_other = place is not self.first
            sessions += [f"{place.host.name}:{name}" if is_other else name for name in names]
        return tuple(sessions)

    async def take_limit_hits(self) -> list[LimitHit]:
        """Limits that were met on any host that can be asked now."""
        hits: list[LimitHit] = []
        for place in self:
            try:
                hits += await place.host.take_limit_hits()
            except HostAway:
                continue  # it is told when the host is back: nobody has asked there meanwhile
        return hits


ALL_HOSTS = "all"
"""Every host; for the actions that list and close sessions."""
ACTIONS_ON_ALL_HOSTS = (ListSessions, CloseAllSessions)


def with_host_argument(action: type[Arguments], names: Sequence[str]) -> type[Arguments]:
    """The action as a task with these hosts offers it; the first is meant when none is named."""
    if len(names) < 2 or not issubclass(action, CommandAction | FileAction):
        return action
    choices = (ALL_HOSTS, *names) if issubclass(action, ACTIONS_ON_ALL_HOSTS) else tuple(names)
    kind = Annotated[Literal[choices], msgspec.Meta(description="The machine.")]  # type: ignore[valid-type]
    with_host = msgspec.defstruct(
        action.__name__,
        [("host", kind, choices[0])],
        bases=(action,),
        namespace={"__doc__": action.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    assert issubclass(with_host, Arguments)
    return with_host


def without_host_argument(arguments: dict[str, Any], action: type[Arguments]) -> Arguments:
    """The typed arguments of `action` itself."""
    return msgspec.convert({k: v for k, v in arguments.items() if k != "host"}, action)


def hide_places(text: str, host: RolloutHost) -> str:
    """Text for the agent, without the folders of the host."""
    if host.inside == str(host.workspace):
        return text
    text = text.replace(str(host.workspace), host.inside)
    return text.replace(str(host.workspace.parent), "[the host]")


async def act_on_all_hosts(
    places: Sequence[WorkstationHost], arguments: CommandAction, stop: Stop
) -> Observation:
    """Run the action on each host; one that is away is named and stops nothing."""
    answers: list[tuple[str, Observation]] = []
    away_hosts: list[str] = []
    for place in places:
        try:
            answers.append((place.host.name, await place.commands.act(arguments, stop)))
        except HostAway as problem:
            away_hosts.append(f"{problem.host} ({hide_places(problem.why, place.host)})")
    if not answers:
        return Failed(error=f"No host can be reached now: {', '.join(away_hosts)}.")
    return _merge_answers(answers, tuple(away_hosts))


def _merge_answers(
    answers: Sequence[tuple[str, Observation]], away: tuple[str, ...]
) -> Observation:
    if isinstance(answers[0][1], SessionChange):
        closed = tuple(
            f"{host}:{name}"
            for host, answer in answers
            if isinstance(answer, SessionChange)
            for name in answer.closed
        )
        return SessionChange(session_id="", change="closed", closed=closed, away=away)
    entries = tuple(
        msgspec.structs.replace(entry, host=host)
        for host, answer in answers
        if isinstance(answer, SessionList)
        for entry in answer.sessions
    )
    return SessionList(sessions=entries, away=away)


async def interrupted_observation(call: ToolCall, place: WorkstationHost) -> Interrupted:
    """Say that the outcome is unknown, and what the terminal or the file shows now."""
    try:
        view = await current_view(call, place)
    except HostAway as problem:
        reason = hide_places(problem.why, place.host)
        view = f"The host {problem.host} cannot be reached now: {reason}."
    return Interrupted(error=f"The daemon went down while {call.name} ran.", now=view)


_NO_SUBMISSION = "No submission was used."


async def current_view(call: ToolCall, place: WorkstationHost) -> str:
    """What the call was about shows now. Raises HostAway."""
    path = call.arguments.get("path") or call.arguments.get("filename")
    if "session_id" in call.arguments:
        return await place.commands.budget_status(call.arguments["session_id"])
    if is_known_to_write(call.name) and path:
        return await place.files.budget_status(path)
    return _NO_SUBMISSION if call.name == EVALUATION_CALL else ""


_GO_ON = "Its sessions and what runs in them go on there, and the connection is tried again."


async def host_away_observation(
    call: ToolCall, place: WorkstationHost, away: HostAway
) -> Observation:
    """The honest result; where the host is back by now, with what it shows."""
    reason = hide_places(away.why, place.host)
    if away.needed is not None:
        error = f"The host {away.host} cannot be used now: {reason}. {call.name} was not done."
        if call.name == EVALUATION_CALL:  # broken off: the last one is run again after the pause
            return Interrupted(error=error, now=_NO_SUBMISSION)
        return Failed(error=error)
    if not away.cut:
        return Failed(
            error=f"The host {away.host} cannot be reached now: {reason}. {call.name} was not "
            f"done. {_GO_ON} Try again later"
        )
    try:
        view = await current_view(call, place)
        view = f"The host is back.\n{view}" if view else "The host is back."
    except HostAway:
        view = _GO_ON
    return Interrupted(
        error=f"The host {away.host} went away while {call.name} ran ({reason}).", now=view
    )
