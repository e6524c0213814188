"""One session of an OpenEnv server, over its WebSocket `/ws`; `/schema` describes the actions.

The client in `openenv-core` sends the same messages, but imports too much for a worker
(docs/decisions.md#openenv-is-spoken-to-without-its-client). Two kinds of environments are
supported: those with tools of their own (an action names one), and those with one typed action,
which is the tool `step` here.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import msgspec

from houston_daemon.environments.http.connected_world import reward_score
from houston_daemon.environments.http.http_simulator_client import (
    Reset,
    Score,
    SimulatorFailed,
    Step,
    Tool,
)
from houston_daemon.environments.observation_boundary import one_line
from houston_shared.task_tables import OpenEnvSettings

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

TYPED_ACTION = "step"
"""The tool that an environment with one typed action has."""
_TOOL_SCHEMAS = ("Action", "CallToolAction", "ListToolsAction")
"""Titles of the action's schema where an environment has tools."""
_MOST = 8_000_000
"""Bytes of an answer."""


class _Message(msgspec.Struct):
    """What the server says to a message of ours."""

    type: str
    data: dict[str, Any] = {}


class _StepResult(msgspec.Struct):
    """What an episode shows after its reset or a step."""

    observation: dict[str, Any] = {}
    reward: Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)] | bool | None = None
    done: bool = False


class OpenEnvSession:
    """See `connected_world.World`."""

    def __init__(self, settings: OpenEnvSettings, key: str, rollout: str) -> None:
        """key: sent as a bearer token; empty for none. rollout: the name of the episode."""
        self._settings = settings
        self._url = settings.url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._rollout = rollout
        self._socket: ClientConnection | None = None
        self._has_tools = False
        self._rewards: list[float] = []

    @property
    def alive(self) -> bool:
        """Whether there is a connection that nothing has gone wrong with."""
        return self._socket is not None

    async def begin(self, seed: int, settings: Mapping[str, Any]) -> Reset:
        """Connect, reset, and ask for the tools."""
        await self.end()
        self._rewards.clear()
        try:
            return await self._reset_episode(seed, settings)
        except BaseException:
            await self.end()
            raise

    async def _reset_episode(self, seed: int, settings: Mapping[str, Any]) -> Reset:
        schema = await self._action_schema()
        self._has_tools = schema.get("title") in _TOOL_SCHEMAS
        self._socket = await self._connected()
        data = {**settings, "seed": seed, "episode_id": self._rollout}
        start = await self._ask({"type": "reset", "data": data})
        if not self._has_tools:
            return Reset(text=_observation_text(start.observation), tools=(_typed_tool(schema),))
        listed = await self._ask({"type": "step", "data": {"type": "list_tools"}})
        return Reset(text=_observation_text(start.observation), tools=_tools(listed.observation))

    async def act(self, tool: str, arguments: Mapping[str, Any]) -> Step:
        """One step, with what it showed and its reward."""
        action = dict(arguments)
        if self._has_tools:
            action = {"type": "call_tool", "tool_name": tool, "arguments": action}
        answer = await self._ask({"type": "step", "data": action})
        reward = None if answer.reward is None else float(answer.reward)
        if reward is not None:
            self._rewards.append(reward)
        error = _tool_error(answer.observation) if self._has_tools else ""
        return Step(
            text=error or _observation_text(answer.observation),
            success=not error,
            done=answer.done,
            fields={} if reward is None else {"reward": reward},
        )

    async def score(self) -> Score:
        """What the episode's rewards come to."""
        rewards = self._rewards or [0.0]
        last = self._settings.rewards == "last"
        return reward_score(rewards[-1] if last else sum(rewards), self._settings.full_reward)

    async def end(self) -> None:
        """Close the connection, with which the server ends the episode."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _action_schema(self) -> dict[str, Any]:
        """What `/schema` says of actions."""
        limits = httpx.Timeout(self._settings.seconds, connect=min(self._settings.seconds, 10.0))
        try:
            async with httpx.AsyncClient(
                headers=self._headers, timeout=limits, trust_env=False
            ) as client:
                answer = await client.get(f"{self._url}/schema")
                answer.raise_for_status()
                schema = answer.json()["action"]
        except httpx.HTTPStatusError as problem:
            status = problem.response.status_code
            raise SimulatorFailed(f"The server has no OpenEnv schema ({status}).") from None
        except httpx.HTTPError as problem:
            words = f"The OpenEnv server cannot be reached ({type(problem).__name__})."
            raise SimulatorFailed(words, final=False) from None
        except (ValueError, KeyError, TypeError):
            raise SimulatorFailed("What the server says of its actions is no schema.") from None
        return schema if isinstance(schema, dict) else {}

    async def _connected(self) -> "ClientConnection":
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidURI, WebSocketException

        scheme, _, rest = self._url.partition("://")
        try:
            return await connect(
                f"{'wss' if scheme == 'https' else 'ws'}://{rest}/ws",
                additional_headers=self._headers,
                open_timeout=min(self._settings.seconds, 10.0),
                max_size=_MOST,
                proxy=None,
            )
        except (OSError, WebSocketException, InvalidURI) as problem:
            words = f"The OpenEnv server opens no session ({type(problem).__name__})."
            raise SimulatorFailed(words, final=False) from None

    async def _ask(self, message: Mapping[str, Any]) -> _StepResult:
        """The answer to one message; whatever else happens, the connection is at its end."""
        socket = self._socket
        assert socket is not None, "begin() comes first"
        try:
            answer = await self._exchange(socket, json.dumps(message))
        except BaseException:  # an answer that comes later would be taken for the next
            await self.end()
            raise
        if answer.type == "error":
            words = one_line(str(answer.data.get("message") or answer.data), 500).rstrip(".")
            unread = answer.data.get("code") == "VALIDATION_ERROR"
            raise SimulatorFailed(f"The server refused: {words}.", done=False if unread else None)
        try:
            return msgspec.convert(answer.data, _StepResult)
        except msgspec.ValidationError as problem:
            await self.end()
            words = f"The server's answer is not what it should be: {one_line(str(problem), 200)}."
            raise SimulatorFailed(words, done=True) from None

    async def _exchange(self, socket: "ClientConnection", message: str) -> _Message:
        from websockets.exceptions import ConnectionClosed

        seconds = self._settings.seconds
        try:
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ConnectionClosed):  # then it has said why
                    await socket.send(message)
                return msgspec.json.decode(await socket.recv(), type=_Message)
        except TimeoutError:
            words = f"The server did not answer within {seconds:g} s; the session is at its end."
            raise SimulatorFailed(words, done=None) from None
        except ConnectionClosed:
            raise SimulatorFailed("The connection to the server broke.", lost=True) from None
        except msgspec.MsgspecError:
            raise SimulatorFailed("The server's answer is no message of OpenEnv.") from None


def _typed_tool(schema: Mapping[str, Any]) -> Tool:
    """The one action of an environment, without what is not the agent's to say."""
    members = {
        name: member for name, member in schema.get("properties", {}).items() if name != "metadata"
    }
    needed = [name for name in schema.get("required", []) if name in members]
    description = schema.get("description")
    return Tool(
        TYPED_ACTION,
        description if isinstance(description, str) else "Act in the environment.",
        {**schema, "properties": members, "required": needed},
    )


def _tools(observation: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The tools that an environment lists. Raises SimulatorFailed where it lists none."""
    listed = observation.get("tools")
    tools = tuple(
        Tool(
            str(entry.get("name", "")),
            str(entry.get("description") or ""),
            entry.get("input_schema") or entry.get("inputSchema") or {},
        )
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict)
    )
    if not tools:
        raise SimulatorFailed("The server lists no tools.")
    return tools


def _tool_error(observation: Mapping[str, Any]) -> str:
    """Why a call of a tool failed; empty where it did not."""
    error, result = observation.get("error"), observation.get("result")
    if isinstance(error, dict):
        return one_line(str(error.get("message") or error), 500)
    if isinstance(result, dict) and (result.get("is_error") or result.get("isError")):
        return _result_text(result) or "The tool reports an error."
    return ""


def _observation_text(observation: Mapping[str, Any]) -> str:
    """What an observation says: the result of a tool, the only text in it, or all of it but the
    list of tools."""
    if "tool_name" in observation:
        return _result_text(observation.get("result"))
    fields = {
        name: value
        for name, value in observation.items()
        if name != "tools" and value not in (None, "", [], {})
    }
    texts = [value for value in fields.values() if isinstance(value, str)]
    if len(fields) == 1 and texts:
        return texts[0]
    return json.dumps(fields, ensure_ascii=False, default=str) if fields else ""


def _result_text(result: Any) -> str:
    """A tool's result: the text of its content, or its value as JSON."""
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return "\n".join(
            str(block.get("text", "")) for block in content if isinstance(block, dict)
        ).strip()
    if isinstance(result, str):
        return result
    return "" if result is None else json.dumps(result, ensure_ascii=False)
