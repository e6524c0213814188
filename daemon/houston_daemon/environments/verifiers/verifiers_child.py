"""Plays one episode of an environment of the package `verifiers` (0.4), as a separate program.

    python -P verifiers_child.py PARENT_PID

An environment of that package drives its agent: it opens a conversation, runs tools, and scores the
trace. Here the agent's model is the parent process: its endpoint answers with the parent's next
action, and the harness is the package's own loop of model and tools, in this process. So hooks,
limits, tools and rewards are the environment's. Questions and answers are JSON, one a line:

    {"do": "begin", "taskset", "env", "settings", "number"}   → {"text", "tools"}
    {"do": "act", "tool", "arguments"}                        → {"text", "done"}
    {"do": "score"}                                           → {"reward"}

Each may be answered with {"error"} instead. The tool `reply` sends a message without a call; if
nothing answers it, the episode ends. Imports nothing of Houston.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import verifiers.v1 as vf
from aiohttp import web
from openai import AsyncOpenAI, omit
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["AskedHarness"]

HARNESS = "asked_harness"
REPLY = {
    "name": "reply",
    "description": "Say something without calling a tool. Where nobody answers, it is the answer"
    " and ends the episode.",
    "parameters": {
        "type": "object",
        "properties": {"message": {"type": "string", "description": "What is said."}},
        "required": ["message"],
    },
}


class AskedHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Model, tools, model, as the package's `null` does in a program of its own."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """One segment: until the model says something without a call."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        servers = {name: {"url": url} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            tools, dispatch, connections = await connect_mcp({"mcpServers": servers}, stack)
            client = await stack.enter_async_context(
                AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
            )
            while True:
                completion = await client.chat.completions.create(
                    model=ctx.model, messages=messages, tools=tools or omit
                )
                message = completion.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls or []:
                    content = await call_mcp(
                        connections,
                        dispatch,
                        call.function.name,
                        json.loads(call.function.arguments),
                    )
                    EPISODE.shown.append(_message_text(content))
                    messages.append(
                        {"role": "tool", "tool_call_id": call.id, "content": content,
                         "name": call.function.name}
                    )  # fmt: skip
                if not message.tool_calls:
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class Episode:
    """The one episode of this process: what its agent is shown, and does."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        """Results of tools since the agent acted last."""
        self._requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._actions: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._calls = itertools.count(1)
        self._run: asyncio.Task[vf.Episode] | None = None

    async def begin(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Begin the episode of a task; the prompt, and the tools."""
        config = vf.resolve_env_config(
            {"taskset": {**asked["settings"], "id": asked["taskset"]}, "id": asked["env"]}
        )
        seats = agent_config_fields(config)
        if len(seats) != 1:
            return {"error": f"its agents are {', '.join(seats)}, and Houston plays only one"}
        ((seat, agent),) = seats.items()
        own = {"harness": vf.HarnessConfig(id=HARNESS), "runtime": vf.SubprocessConfig()}
        config = config.model_copy(update={seat: agent.model_copy(update=own)})
        env = vf.load_environment(config)
        task = _select_task(env.taskset, asked["number"])
        url = await self._listen()
        client = vf.EvalClientConfig(base_url=url, api_key_var="HOUSTON_HAS_NO_KEY")
        context = vf.ModelContext(model="houston", client=client)
        self._run = asyncio.create_task(self._run_episode(env, task, context))
        request = await self._next_request()
        if request is None:
            return {"error": self._failure_reason() or "it ended before its agent was asked"}
        tools = [tool["function"] for tool in request.get("tools") or []]
        text = "\n\n".join(_message_text(message["content"]) for message in request["messages"])
        return {"text": text, "tools": [*tools, REPLY]}

    async def act(self, action: dict[str, Any]) -> dict[str, Any]:
        """One message of the agent's, and what follows it."""
        if self._run is None or self._run.done():
            return {"error": "the episode is over"}
        self.shown.clear()
        await self._actions.put(action)
        request = await self._next_request()
        texts = [*self.shown, *([] if request is None else _new_user_texts(request["messages"]))]
        return {"text": "\n".join(texts), "done": request is None}

    async def score(self) -> dict[str, Any]:
        """The rewards of the trace, once the episode has ended; one that has not says no more."""
        if self._run is None:
            return {"error": "there is no episode"}
        while not self._run.done():
            await self._actions.put({"tool": "reply", "arguments": {"message": ""}})
            await self._next_request()
        if trouble := self._failure_reason():
            return {"error": trouble}
        (trace,) = self._run.result().traces
        return {"reward": trace.reward}

    async def _run_episode(
        self, env: vf.Env[Any], task: vf.Task[Any, Any, Any], context: vf.ModelContext
    ) -> vf.Episode:
        async with env.serving():
            return await env.run_episode(task, context)

    def _failure_reason(self) -> str:
        """Why the episode that ended has no reward; empty where it has one."""
        assert self._run is not None
        if problem := self._run.exception():
            return f"{type(problem).__name__}: {problem}"
        episode = self._run.result()
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        return "" if episode.ok else "; ".join(f"{fault.type}: {fault.message}" for fault in errors)

    async def _next_request(self) -> dict[str, Any] | None:
        """What the model is asked next; None where the episode ends instead."""
        assert self._run is not None
        request_task = asyncio.create_task(self._requests.get())
        await asyncio.wait((request_task, self._run), return_when=asyncio.FIRST_COMPLETED)
        if request_task.done():
            return request_task.result()
        request_task.cancel()
        return None

    async def _listen(self) -> str:
        """The address of the endpoint that is the agent's model."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self._requests.put(body)
        action = await self._actions.get()
        return web.json_response(_completion(body["model"], action, next(self._calls)))


def _completion(model: str, action: dict[str, Any], number: int) -> dict[str, Any]:
    """An action as an answer of a chat endpoint."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if action["tool"] == "reply":
        message["content"] = action["arguments"]["message"]
    else:
        function = {"name": action["tool"], "arguments": json.dumps(action["arguments"])}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _select_task(taskset: vf.Taskset[Any, Any], number: int) -> vf.Task[Any, Any, Any]:
    """The task of a number; behind the last one of a taskset that ends the first comes again."""
    if not taskset.bounded:
        return next(itertools.islice(iter(taskset), number, None))
    tasks = list(taskset)
    if not tasks:
        raise ValueError("the taskset has no task")
    return tasks[number % len(tasks)]


def _new_user_texts(messages: list[dict[str, Any]]) -> list[str]:
    """What the user said since the agent's last message."""
    texts: list[str] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            break
        if message["role"] == "user":
            texts.insert(0, _message_text(message["content"]))
    return texts


def _message_text(content: Any) -> str:
    """The text of a message; pictures are named."""
    if not isinstance(content, list):
        return str(content or "")
    return "\n".join(
        str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
        for part in content
    )


EPISODE: Episode


async def answer_questions(answers: Any) -> None:
    """Answer until stdin ends."""
    global EPISODE
    EPISODE = Episode()
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        try:
            match request.pop("do"):
                case "begin":
                    answer = await EPISODE.begin(request)
                case "act":
                    answer = await EPISODE.act(request)
                case _:
                    answer = await EPISODE.score()
        except Exception as problem:  # noqa: BLE001 - an environment raises whatever it meets
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the worker
    if os.getppid() == int(sys.argv[1]):
        sys.modules[HARNESS] = sys.modules["__main__"]  # where the package looks for a harness
        lines = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # what an environment prints is no answer
        asyncio.run(answer_questions(lines))
