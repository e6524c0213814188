"""`houston mcp serve`, asked by the SDK's own client."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent

from houston_shared.errors import ExitCode
from tests.support.houston_command import houston_command


def text(result: CallToolResult) -> str:
    return "".join(one.text for one in result.content if isinstance(one, TextContent))


async def ask(folder: Path, *words: str, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "houston_shared.command", "mcp", "serve", *words],
        env={"HOUSTON_HOME": str(folder / "home"), "HOUSTON__HOSTS__ROOT": str(folder / "root"),
             "PATH": os.environ["PATH"]},
    )  # fmt: skip
    async with asyncio.timeout(60), Client(stdio_client(parameters)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        return [names, *(await asyncio.gather(*(client.call_tool(*one) for one in calls)))]


async def test_python_and_search_are_served(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    rows = [{"id": "a", "title": "Heron", "text": "The Morning Heron sank in 1676."}]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names, added, failed, found, nothing = await ask(
        tmp_path, "--python", "--corpus", str(corpus),
        calls=[
            ("python", {"code": "from sympy import Integer\nInteger(6) * 7"}),
            ("python", {"code": "print('before')\n1 / 0"}),
            ("search", {"query": "heron"}),
            ("search", {"query": "zebra"}),
        ],
    )  # fmt: skip
    assert names == ["python", "search"]
    assert (text(added), added.is_error) == ("42", False)
    assert failed.is_error and text(failed).startswith("before\n")
    assert failed.structured_content["error_type"] == "ZeroDivisionError"
    assert "1676" in text(found) and found.structured_content["addresses"] == ["corpus:a"]
    assert "Nothing was found" in text(nothing)
    shared = ("retrieval", "filters")
    left = [path for path in (tmp_path / "root").glob("*/*") if path.parent.name not in shared]
    assert not left, "nothing is left behind, so nothing stands in the way of the next start"


def test_nothing_to_serve_is_said(tmp_path: Path) -> None:
    for words, code, said in (
        ([], ExitCode.CONFIGURATION, "nothing to serve"),
        (["--corpus", "/no/such"], ExitCode.NOT_FOUND, "neither a folder"),
    ):
        done = subprocess.run(
            houston_command("mcp", "serve", *words),
            env={**os.environ, "HOUSTON_HOME": str(tmp_path / "home")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code and said in done.stderr and not done.stdout, done
