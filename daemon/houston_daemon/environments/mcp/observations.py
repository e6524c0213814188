"""What a tool of a server gave back, and how it reads."""

from typing import ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Called(Observation, frozen=True, kw_only=True):
    """A tool's result; `success` is what the server says."""

    kind: ClassVar[str] = "mcp"
    bulk: ClassVar[tuple[str, ...]] = ("text", "news")
    server: str
    tool: str
    """The tool's name at its server."""
    text: str
    not_shown: tuple[str, ...] = ()
    """Kinds of content that are declared and not shown."""
    tools_changed: bool = False
    news: str = ""
    """What changed in the tools."""


class Finish(Observation, frozen=True, kw_only=True):
    """The agent says that it is done."""

    kind: ClassVar[str] = "finish"
    finished: bool


@render.register
def _(one: Called) -> Text:
    failed = "The tool reports an error:" if one.error else ""
    return Text(failed, "\n".join(part for part in (one.text or "(no content)", one.news) if part))


@render.register
def _(one: Finish) -> Text:
    return Text("Finished." if one.finished else f"Error: {one.error}")
