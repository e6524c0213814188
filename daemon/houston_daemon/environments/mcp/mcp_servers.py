"""All servers of one rollout: their tools, under names that stay; and results as text."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.environments.foreign_tools import ForeignTools, OfferedTool
from houston_daemon.environments.mcp.mcp_connection import Connection, ServerFailed
from houston_daemon.environments.rollout_state import load_state, save_state
from houston_daemon.environments.tool_arguments import Catalog
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_shared.records import ToolCall


class KnownTools(msgspec.Struct, frozen=True):
    """What the agent knows of tools."""

    names: dict[str, tuple[str, str]]
    """Name → server, and its name there."""
    tools: dict[str, dict[str, Any]]
    """Name → the tool in OpenAI's form."""
    first: dict[str, dict[str, Any]] = {}
    """Those that the rollout began with, which stand in its head and in that of its branches."""


class Servers:
    """The tools of one rollout, of servers and our own."""

    def __init__(
        self,
        connections: Sequence[Connection],
        own: Catalog,
        allowed: Sequence[str],
        file: Path,
        parent_file: Path | None = None,
    ) -> None:
        """file: where what the agent knows is kept; parent_file: that of a branch's parent."""
        self._connections = {connection.name: connection for connection in connections}
        self._own = own
        self._allowed = allowed
        self._file = file
        self._parent_file = parent_file
        self._lists: dict[str, list[OfferedTool]] = {}
        self._known: KnownTools | None = None
        self.offered = ForeignTools(own, (), allowed)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """All tools."""
        return self.offered.tools

    @property
    def instructions(self) -> str:
        """What servers say of how they are used."""
        texts = [
            (connection.name, connection.instructions) for connection in self._connections.values()
        ]
        return "\n".join(f"{name}: {text}" for name, text in texts if text)

    async def open(self, rollout: str) -> None:
        """Start or reach all of them. Raises NeedsPerson where one cannot be."""
        self._known = await asyncio.to_thread(self._load_known)
        lists = await asyncio.gather(
            *(connection.tools() for connection in self._connections.values()),
            return_exceptions=True,
        )
        for name, listed in zip(self._connections, lists, strict=True):
            if isinstance(listed, ServerFailed):
                raise NeedsPerson(
                    str(listed),
                    "The rollout waits.",
                    f"See: houston daemon logs --rollout {rollout}. Start it, then: houston"
                    f" rollout resume {rollout}",
                )
            if isinstance(listed, BaseException):
                raise listed
            self._lists[name] = listed
        self._name()
        if self._known is None:
            self.news()

    def _load_known(self) -> KnownTools | None:
        """What the agent knows; of a branch that begins, what its head says, under its parent's
        names. None for who knows nothing yet."""
        known_tools = load_state(self._file, KnownTools)
        if known_tools is not None or self._parent_file is None:
            return known_tools
        parent = load_state(self._parent_file, KnownTools)
        if parent is None:  # freed, or on another machine
            return None
        first = parent.first or parent.tools
        known_tools = KnownTools(parent.names, first, first)
        save_state(self._file, known_tools)
        return known_tools

    def check(self, call: ToolCall) -> ToolCall:
        """The call, or with `error` saying what is wrong with it."""
        return self.offered.check(call)

    async def call(self, call: ToolCall) -> CallToolResult:
        """Call a tool of a server. Raises ServerFailed."""
        tool = self.offered.find(call.name)
        assert tool is not None, "a tool of a server"
        connection = self._connections[tool.source]
        return await connection.call(tool.name, self.offered.arguments(call))

    async def look(self, name: str) -> None:
        """Ask the server of a tool for its tools again, where they may have changed."""
        tool = self.offered.find(name)
        connection = self._connections[tool.source] if tool else None
        if connection is not None and connection.stale:
            self._lists[connection.name] = await connection.tools()
            self._name()

    def news(self) -> str:
        """What changed since the agent was last told; from then on it counts as told."""
        tools = {tool.name: dict(tool.openai()["function"]) for tool in self.tools}
        before = self._known.tools if self._known else tools
        lines = [f"The tool {name} is gone." for name in before if name not in tools]
        for name, tool in tools.items():
            if before.get(name) != tool:
                verb = "changed" if name in before else "is new"
                lines.append(f"The tool {name} {verb}: {json.dumps(tool, ensure_ascii=False)}")
        if lines or self._known is None:
            first = self._known.first if self._known else tools
            self._known = KnownTools({**self._names, **self.offered.names}, tools, first)
            save_state(self._file, self._known)
        return "\n".join(lines)

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    @property
    def _names(self) -> Mapping[str, tuple[str, str]]:
        return self._known.names if self._known else {}

    def _name(self) -> None:
        offered = [tool for listed in self._lists.values() for tool in listed]
        self.offered = ForeignTools(self._own, offered, self._allowed, self._names)


_MAX_TEXT_CHARACTERS = 2_000_000
"""Characters that are kept before the observation is cut."""


@dataclass(frozen=True, slots=True)
class ToolResultText:
    """A result in words."""

    text: str
    not_shown: tuple[str, ...]
    """Kinds of content that are not shown."""


def tool_result_text(result: CallToolResult) -> ToolResultText:
    """The result's content, or where it has none its structured value as JSON."""
    parts: list[str] = []
    not_shown: list[str] = []
    for block in result.content:
        text, kind = _block_text(block)
        parts.append(text)
        not_shown += [kind] if kind else []
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False, indent=1))
    return ToolResultText(_join_parts(parts), tuple(dict.fromkeys(not_shown)))


def _block_text(block: Any) -> tuple[str, str]:
    """Its text, and the kind of what is not shown."""
    match block:
        case TextContent():
            return block.text, ""
        case ImageContent():
            return _placeholder_text("image", block.mime_type, block.data), "image"
        case AudioContent():
            return _placeholder_text("audio", block.mime_type, block.data), "audio"
        case ResourceLink():
            return f"[link to the resource {block.uri}]", ""
        case EmbeddedResource():
            return _resource(block)
    return f"[{type(block).__name__}: not shown]", "other"


def _resource(block: EmbeddedResource) -> tuple[str, str]:
    inner = block.resource
    kind = inner.mime_type or "unknown type"
    if isinstance(inner, TextResourceContents):
        size = f"{len(inner.text)} characters"
    else:
        size = f"about {len(inner.blob) * 3 // 4} bytes"
    return f"[embedded resource {inner.uri}, {kind}, {size}: not shown]", "resource"


def _placeholder_text(label: str, kind: str, data: str) -> str:
    return f"[{label}, {kind}, about {len(data) * 3 // 4} bytes: not shown]"


def _join_parts(parts: Sequence[str]) -> str:
    text = "\n".join(parts)
    if len(text) <= _MAX_TEXT_CHARACTERS:
        return text
    dropped_count = len(text) - _MAX_TEXT_CHARACTERS
    return f"{text[:_MAX_TEXT_CHARACTERS]}\n[{dropped_count} characters beyond this were dropped]"
