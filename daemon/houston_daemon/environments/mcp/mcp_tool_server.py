"""Houston's own tools for other programs: `python` and `search` as a server of tools, over stdio.

Unlike the rest of this folder, this is the server's side. Code runs in a separate sandbox, as in
the environment `python`; nothing is recorded.
"""

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent

from houston_daemon.environments import observation_boundary
from houston_daemon.environments.python.python_tool import MAX_CODE_CHARACTERS, PythonTool
from houston_daemon.environments.retrieval.retrieval_protocol import (
    MAX_QUERY_CHARACTERS,
    Hit,
    SearchFailed,
)
from houston_daemon.environments.retrieval.searcher import Searcher
from houston_daemon.environments.typed_observation import render

_CHARACTERS = 30_000
_MAX_HITS = 50


def tool_server(version: str, python: PythonTool | None, searcher: Searcher | None) -> MCPServer:
    """A server with the tools that are given."""
    server = MCPServer("houston", version=version)
    if python is not None:
        _serve_python(server, python)
    if searcher is not None:
        _serve_search(server, searcher)
    return server


def _serve_python(server: MCPServer, tool: PythonTool) -> None:
    async def python(code: str) -> CallToolResult:
        """Run Python code and see what it prints; each call starts anew and remembers nothing."""
        if not code.strip() or len(code) > MAX_CODE_CHARACTERS:
            return _error_result(f"`code` must have 1 to {MAX_CODE_CHARACTERS} characters.")
        executed = await tool.run(code)
        text = render(executed)
        bounded_text = observation_boundary.bound_text(
            text.body, _CHARACTERS, text.how, text.head
        ).text
        return CallToolResult(
            content=[TextContent(text=bounded_text)],
            structured_content=executed.fields(),
            is_error=not executed.success,
        )

    server.add_tool(python)


def _serve_search(server: MCPServer, searcher: Searcher) -> None:
    async def search(query: str, top_k: int = 5) -> CallToolResult:
        """Search by words; the best documents or pages first."""
        if not query.strip() or len(query) > MAX_QUERY_CHARACTERS:
            return _error_result(f"`query` must have 1 to {MAX_QUERY_CHARACTERS} characters.")
        try:
            answer = await searcher.search(query, max(1, min(_MAX_HITS, top_k)))
        except SearchFailed as problem:
            return _error_result(str(problem))
        lines = [_entry(number, hit) for number, hit in enumerate(answer.hits, 1)]
        text = "\n".join(lines) or "Nothing was found; use other words."
        return CallToolResult(
            content=[TextContent(text=observation_boundary.bound_text(text, _CHARACTERS).text)],
            structured_content={"addresses": [hit.url for hit in answer.hits]},
        )

    server.add_tool(search)


def _entry(number: int, hit: Hit) -> str:
    return f"{number}. {hit.title}\n   {hit.url}\n   {hit.snippet}"


def _error_result(reason: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=f"Error: {reason}")], is_error=True)
