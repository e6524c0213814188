"""An OpenAI-compatible chat endpoint that plays a scripted agent in place of a model.

It turns requests into `ChatHistory`s and a scripted agent's turns into streamed answers.
`ScriptedSpecs` finds the spec of the rollout behind a conversation. `scripted_agents` decides what
is played.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from houston_daemon.engines.chat_engine import ROLLOUT_HEADER
from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_shared.guidance_tag import CLOSING_TAG, OPENING_TAG
from houston_shared.records import RolloutSpec
from houston_shared.store import rollout_queries


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """A prompt as messages: what the agent has seen."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[str, ...] = ()
    """Names of the tools it may use."""
    rollout: str = ""
    """Id of the rollout whose prompt it is; empty where nobody said it."""

    @property
    def step(self) -> int:
        """Number of the step that is to be decided, from 1; a context that was never forked."""
        return 1 + [message["role"] for message in self.messages].count("assistant")

    @property
    def task(self) -> str:
        """The first message of the user: the task as the rollout's head has it."""
        users = (message for message in self.messages if message["role"] == "user")
        return next((str(message["content"]) for message in users), "")

    @property
    def observation(self) -> str:
        """The newest observation, with the guidance that was joined to it; "" at the start."""
        return str(self.messages[-1]["content"]) if self.step > 1 else ""

    @property
    def heard(self) -> tuple[str, ...]:
        """The messages of people in the newest observation."""
        return _guidance_texts(self.messages[-1:]) if self.step > 1 else ()

    @property
    def actions(self) -> tuple[str, ...]:
        """What each step did: the command of an `act`, else the name of its first tool."""
        answers = (message for message in self.messages if message["role"] == "assistant")
        return tuple(map(_action_of_message, answers))

    def guidance_after_step(self, step: int) -> tuple[str, ...]:
        """The messages of people at the end of `step`."""
        starts = [at for at, message in enumerate(self.messages) if message["role"] == "assistant"]
        if not 0 < step <= len(starts):
            return ()
        end = (starts[step:] or [len(self.messages)])[0]
        return _guidance_texts(self.messages[starts[step - 1] + 1 : end])

    @property
    def all_guidance(self) -> tuple[str, ...]:
        """The messages of people in all observations, in order."""
        return _guidance_texts(
            [message for message in self.messages[2:] if message["role"] in ("tool", "user")]
        )


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """What an agent answers."""

    thought: str
    name: str
    arguments: Mapping[str, Any]


def _action_of_message(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    if not calls:
        return ""
    function = calls[0]["function"]
    if function["name"] != "act":
        return str(function["name"])
    return str(json.loads(function["arguments"]).get("action", ""))


def _guidance_texts(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    parts = (
        part for message in messages for part in str(message["content"]).split(OPENING_TAG)[1:]
    )
    return tuple(part.split(CLOSING_TAG)[0] for part in parts)


ScriptedAgent = Callable[[ChatHistory], ScriptedTurn]


class ScriptedEndpoint:
    """Serves an agent on the loopback address until it is closed. port: 0 takes a free one."""

    def __init__(self, agent: ScriptedAgent, port: int = 0) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _make_handler(agent))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """Where it answers."""
        return int(self._server.server_address[1])

    def __enter__(self) -> "ScriptedEndpoint":
        """Serve in a thread of its own."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def endpoint_engine(port: int) -> dict[str, Any]:
    """Its `[engines.NAME]` table."""
    return {"kind": "chat", "url": f"http://127.0.0.1:{port}/v1", "model": "scripted"}


def _make_handler(agent: ScriptedAgent) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            """What it serves: asked to see whether it answers."""
            self._answer(json.dumps({"data": [{"id": "scripted"}]}).encode(), "application/json")

        def do_POST(self) -> None:
            """One sample."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                tools = tuple(tool["function"]["name"] for tool in body.get("tools", ()))
                rollout = unquote(self.headers.get(ROLLOUT_HEADER, ""))
                turn = agent(ChatHistory(tuple(body["messages"]), tools, rollout))
            except Exception as problem:
                # Said to the rollout as a refusal: it fails, with these words for its reason.
                words = json.dumps({"error": {"message": f"{type(problem).__name__}: {problem}"}})
                self._answer(words.encode(), "application/json", 400)
                raise
            self._answer(_stream_events(turn), "text/event-stream")

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are no news."""

        def _answer(self, data: bytes, kind: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the rollout left
                self.wfile.write(data)

    return Handler


def _stream_events(turn: ScriptedTurn) -> bytes:
    function = {"name": turn.name, "arguments": json.dumps(turn.arguments)}
    call = {"index": 0, "id": "call", "function": function}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"content": turn.thought, "tool_calls": [call]}, None),
        ({}, "tool_calls"),
    ]
    lines = [
        json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        for delta, finish in deltas
    ]
    return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


class ScriptedSpecs:
    """Specs by rollout, each read once; safe to use from threads.

    A rollout names itself with each request. Its task would not identify it: different worlds of
    ScienceWorld have word for word the same task.
    """

    def __init__(self, experiment_home: ExperimentHome) -> None:
        self._experiment_home = experiment_home
        self._by_rollout: dict[str, RolloutSpec] = {}
        self._lock = threading.Lock()

    def spec_of(self, chat: ChatHistory) -> RolloutSpec:
        """The spec of the rollout whose conversation it is. Raises HoustonError."""
        with self._lock:
            if chat.rollout not in self._by_rollout:
                row = self._experiment_home.read(rollout_queries.find_rollout(chat.rollout))
                spec = self._experiment_home.read(rollout_queries.read_rollout_spec(row))
                self._by_rollout[chat.rollout] = spec
            return self._by_rollout[chat.rollout]
