"""Tools from other sources next to our own, under unique names that a model can write.

A tool keeps its name; if two tools have the same name, or one has a name of ours, the name of its
source is put before it.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.environments.foreign_schema import (
    bounded_schema,
    decoded_json_text,
    schema_violation,
)
from houston_daemon.environments.observation_boundary import one_line
from houston_daemon.environments.tool_arguments import Catalog
from houston_shared.records import EVALUATION_CALL, ToolCall
from houston_shared.safe_text import is_utf8

MAX_TOOLS = 200
_UNSOUND = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as its source describes it."""

    source: str
    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class ForeignTools:
    """What a rollout can call: its own actions, and what others offer."""

    def __init__(
        self,
        own: Catalog,
        offered: Iterable[OfferedTool],
        allowed: Sequence[str],
        kept_names: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """allowed: names that the task chooses, as models see them; empty for all.

        kept_names: names that were given already, with whose tool has them and its name there.
        """
        taken_names = {tool.name for tool in own.tools} | {EVALUATION_CALL}
        self._own = own
        self._offered: dict[str, OfferedTool] = {}
        for name, tool in _assign_names(list(offered)[:MAX_TOOLS], taken_names, kept_names or {}):
            if not allowed or name in allowed:
                self._offered[name] = tool
        theirs = [_spec(name, tool) for name, tool in self._offered.items()]
        ours = [tool for tool in own.tools if not allowed or tool.name in allowed]
        self.tools: tuple[ToolSpec, ...] = (*theirs, *ours)
        self._schemas = {tool.name: tool.parameters for tool in theirs}

    @property
    def names(self) -> dict[str, tuple[str, str]]:
        """By offered name, the tool's source and its name there."""
        return {name: (tool.source, tool.name) for name, tool in self._offered.items()}

    def find(self, name: str) -> OfferedTool | None:
        """The source of a tool, and its name there; None for one of our own."""
        return self._offered.get(name)

    def check(self, call: ToolCall) -> ToolCall:
        """The call, or with `error` saying what is wrong with it."""
        if call.error:
            return call
        if call.name in self._schemas:
            violation = _text(call.arguments) or schema_violation(
                call.arguments, self._schemas[call.name]
            )
            return msgspec.structs.replace(
                call, error=f"{call.name}: {violation}." if violation else ""
            )
        if any(tool.name == call.name for tool in self.tools):
            return self._own.check(call)
        names = [tool.name for tool in self.tools]
        near = difflib.get_close_matches(call.name, names, n=2)
        hint = (
            f"Did you mean {' or '.join(near)}?" if near else f"The tools are {', '.join(names)}."
        )
        return msgspec.structs.replace(call, error=f"There is no tool {call.name[:60]!r}. {hint}")

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """A checked call's arguments as its source takes them."""
        decoded: dict[str, Any] = decoded_json_text(call.arguments, self._schemas[call.name])
        return decoded


def _spec(name: str, tool: OfferedTool) -> ToolSpec:
    described = one_line(tool.description, 1_000)
    return ToolSpec(name, described, bounded_schema(tool.parameters), tool.source)


def _assign_names(
    offered: Sequence[OfferedTool], taken_names: set[str], kept_names: Mapping[str, tuple[str, str]]
) -> Iterable[tuple[str, OfferedTool]]:
    counts = Counter(_sanitize_name(tool.name) for tool in offered)
    name_of = {whose: name for name, whose in kept_names.items()}
    used = {*taken_names, *kept_names}
    for tool in offered:
        if name := name_of.pop((tool.source, tool.name), ""):
            yield name, tool
            continue
        name = _sanitize_name(tool.name)
        if counts[name] > 1 or name in used:
            name = _sanitize_name(f"{tool.source}_{tool.name}")
        if not name or name in used:
            continue  # the same source names it twice: it cannot tell the two apart either
        used.add(name)
        yield name, tool


def _sanitize_name(name: str) -> str:
    return _UNSOUND.sub("_", name)[:64].strip("_-")


def _text(arguments: Any) -> str:
    """JSON can spell half a surrogate pair, which is no character anywhere."""
    try:
        text = json.dumps(arguments, ensure_ascii=False)
    except RecursionError:
        return "the arguments are nested too deeply"
    return (
        "" if is_utf8(text) else "the arguments hold half a surrogate pair, which is no character"
    )
