"""The parts of a task file that name servers: a simulator over HTTP, and servers of tools (MCP)."""

from typing import Annotated

import msgspec

from houston_shared.toml_file import Settings

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Http(Settings, frozen=True):
    """The simulator of `http` (docs/http-environment.md)."""

    url: str = ""
    """Its address, `http://…` or `https://…`; `/reset`, `/step` and `/score` follow it."""
    seconds: _Seconds = 60.0
    """Longest time of one request."""
    patience_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """How long a request is tried again, where that is safe, before the agent is told."""
    api_key_env: str = ""
    """Variable of the daemon's environment whose value is sent as a bearer token: a secret
    (`[secrets]` of houston.toml) of at least 8 characters, taken out of whatever is stored."""
    score: bool = True
    """Whether `/score` says how well the agent did."""


class McpServer(Settings, frozen=True):
    """One server of tools (Model Context Protocol): `command` or `url`."""

    command: str = ""
    """Program that is started in the rollout's sandbox and spoken to over its input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: dict[str, str] = {}
    """Variables of the program; `[secret:NAME]` stands for a secret of the daemon's environment."""
    url: str = ""
    """Address of a server that runs already (streamable HTTP)."""
    headers: dict[str, str] = {}
    """Headers of every request to `url`; `[secret:NAME]` as in `env`."""
    start_seconds: _Seconds = 60.0
    """Longest time until it has listed its tools."""
    seconds: _Seconds = 120.0
    """Longest time of one call."""


class Mcp(Settings, frozen=True):
    """The servers of `mcp`."""

    servers: dict[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")],
                  McpServer] = {}  # fmt: skip
    """Servers by name; the name stands before tools that two of them have."""
