"""File actions on a host over SSH: requested here, run there by the same code as local ones.

The far end keeps its own file window and what the agent has seen, in `workstation.json` of the
rollout's folder there; both ends of the protocol are in this module.
"""

import asyncio
import logging
from typing import Any

import msgspec

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.environments.workstation import file_observations
from houston_daemon.environments.workstation.confined_paths import ConfinedFolder, PathRefused
from houston_daemon.environments.workstation.file_actions import FileActions
from houston_daemon.environments.workstation.file_observations import FileWindow
from houston_daemon.environments.workstation.workstation_state import StateFile
from houston_daemon.environments.workstation_actions import FILE_ACTIONS
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.ssh.remote_server import RemoteService
from houston_daemon.hosts.ssh.ssh_host import SshHost

log = logging.getLogger(__name__)
SERVICE = "files"
_ACTIONS = {action.__name__: action for action in FILE_ACTIONS}
_OBSERVATIONS = {
    kind.__name__: kind
    for kind in (*vars(file_observations).values(), Failed)
    if isinstance(kind, type) and issubclass(kind, Observation)
}


class _Act(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Run one action."""

    characters: int
    action: str
    arguments: msgspec.Raw


class _Write(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Write what another action made."""

    characters: int
    path: str
    content: str


class _Standing(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What a file is now."""

    characters: int
    path: str


_Asks = _Act | _Write | _Standing


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    kind: str
    """Name of the observation's class; empty where `text` is all."""
    observation: Any = None
    text: str = ""
    refused: str = ""
    """Why a path is not reached; what PathRefused says."""
    touched: tuple[str, ...] = ()


class RemoteFileActions:
    """The file actions of one SSH host, as `FileActions` offers them."""

    def __init__(self, host: SshHost, characters: int) -> None:
        self._link = host.link
        self._characters = characters
        self._touched: list[str] = []

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action. Raises PathRefused and HostAway."""
        raw = msgspec.Raw(msgspec.msgpack.encode(arguments))
        name = type(arguments).__name__
        ask = _Act(characters=self._characters, action=name, arguments=raw)
        return _observation(await self._ask(ask, idempotent=arguments.idempotent))

    async def write(self, path: str, content: str) -> FileWindow | Failed:
        """Write what another action made, and show its beginning."""
        ask = _Write(characters=self._characters, path=path, content=content)
        observation = _observation(await self._ask(ask, idempotent=False))
        assert isinstance(observation, FileWindow | Failed)
        return observation

    def take_written_paths(self) -> list[str]:
        """Paths written since this was asked last: hints for a snapshot."""
        touched, self._touched = self._touched, []
        return touched

    async def budget_status(self, path: str) -> str:
        """What a file is now, for a call whose outcome is unknown."""
        ask = _Standing(characters=self._characters, path=path)
        return (await self._ask(ask, idempotent=True)).text

    async def _ask(self, ask: _Asks, idempotent: bool) -> _Done:
        answer: _Done = await self._link.other(SERVICE, ask, _Done, idempotent=idempotent)
        self._touched += answer.touched
        if answer.refused:
            raise PathRefused(answer.refused)
        return answer


def _observation(answer: _Done) -> Observation:
    return msgspec.convert(answer.observation, _OBSERVATIONS[answer.kind])


def serve(host: LocalHost) -> RemoteService:
    """The far end: file actions on the workspace of `host`, one at a time."""
    state = StateFile(host.folder / "workstation.json")
    turn = asyncio.Lock()
    actions_of: dict[int, FileActions] = {}

    async def answer(_: LocalHost, body: msgspec.Raw, __: asyncio.Event) -> _Done:
        ask: _Asks = msgspec.msgpack.decode(body, type=_Asks)
        async with turn:
            if not actions_of:
                await asyncio.to_thread(state.load)
            if ask.characters not in actions_of:
                confined = ConfinedFolder(host.workspace)
                actions_of[ask.characters] = FileActions(
                    confined, lambda: state.now, ask.characters
                )
            answer = await _do(actions_of[ask.characters], ask)
            try:
                await asyncio.to_thread(state.save)
            except OSError as problem:  # a full disk: what was done is told all the same
                log.warning("the state is not saved: %s", problem)
            return answer

    return answer


async def _do(files: FileActions, ask: _Asks) -> _Done:
    try:
        match ask:
            case _Act():
                arguments = msgspec.msgpack.decode(ask.arguments, type=_ACTIONS[ask.action])
                observation = await files.act(arguments, Stop())
            case _Write():
                observation = await files.write(ask.path, ask.content)
            case _Standing():
                return _Done(kind="", text=await files.budget_status(ask.path))
    except PathRefused as refused:
        return _Done(kind="", refused=str(refused), touched=tuple(files.take_written_paths()))
    touched = tuple(files.take_written_paths())
    name = type(observation).__name__
    return _Done(kind=name, observation=msgspec.to_builtins(observation), touched=touched)
