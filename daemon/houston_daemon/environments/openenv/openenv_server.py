"""Episodes of our environments behind OpenEnv's own server, for any client of its protocol.

An environment is served as one with tools: its actions are `list_tools` and `call_tool`. The reset
shows the task and its tools; a step shows the text for an agent, its reward, and whether the
episode is over. Needs `openenv-core`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import WebSocketDisconnect
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
)
from openenv.core.env_server.types import EnvironmentMetadata, Observation, State

from houston_daemon.environments.openenv.served_episode import Episodes, ServedEpisode

_ENDING_SECONDS = 60.0
"""How long the end of an episode may take, when its session is closed."""


class TaskObservation(ListToolsObservation):  # type: ignore[misc]
    """What a reset shows: what is to be done, and with what."""

    text: str = ""
    """Instructions, and what this episode of the task is about."""


class ServedEnvironment(Environment):  # type: ignore[misc]
    """One session of a client. Made in a thread of the server's, driven on its event loop."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, episodes: Episodes, name: str, version: str) -> None:
        super().__init__()
        self._episode = ServedEpisode(episodes)
        self._name, self._version = name, version
        self._state = State()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **_settings: Any
    ) -> Observation:
        """Begin an episode. Raises HoustonError where its world cannot be made."""
        self._loop = asyncio.get_running_loop()
        text = await self._episode.begin(seed)
        self._state = State(episode_id=episode_id, step_count=0)
        return TaskObservation(text=text, tools=self._tools(), done=False, reward=0.0)

    async def step_async(
        self, action: Any, timeout_s: float | None = None, **_settings: Any
    ) -> Observation:
        """List the tools, which is no step, or call one."""
        if isinstance(action, ListToolsAction):
            return ListToolsObservation(tools=self._tools())
        step = await self._episode.act(action.tool_name, dict(action.arguments))
        self._state.step_count = self._episode.step
        result = {
            "content": [{"type": "text", "text": step.text}],
            "data": step.text,
            "is_error": not step.success,
        }
        return CallToolObservation(
            tool_name=action.tool_name, result=result, reward=step.reward, done=step.done
        )

    def reset(self, *_arguments: Any, **_settings: Any) -> Observation:
        """The server awaits `reset_async`."""
        raise NotImplementedError

    def step(self, *_arguments: Any, **_settings: Any) -> Observation:
        """The server awaits `step_async`."""
        raise NotImplementedError

    @property
    def state(self) -> State:
        """Name of the episode, and how many actions it had."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """The task's name, and Houston's version."""
        return EnvironmentMetadata(
            name=self._name, description=f"{self._name}, served by Houston", version=self._version
        )

    def close(self) -> None:
        """End the episode; called in a thread of the server's, or on its loop."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                self._ending = loop.create_task(self._episode.end())
                return
        asyncio.run_coroutine_threadsafe(self._episode.end(), loop).result(_ENDING_SECONDS)

    def _tools(self) -> list[Tool]:
        return [
            Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters))
            for tool in self._episode.tools
        ]


AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


def server_app(episodes: Episodes, name: str, version: str, sessions: int) -> AsgiApp:
    """The application. sessions: most clients at once."""
    factory = partial(ServedEnvironment, episodes, name, version)
    app = create_fastapi_app(
        factory, CallToolAction, CallToolObservation, max_concurrent_envs=sessions
    )

    async def quiet_app(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(WebSocketDisconnect):  # it also closes what its client has left
            await app(scope, receive, send)

    return quiet_app
