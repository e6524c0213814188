"""A small real chat endpoint that misbehaves on order: the chat engine's counterpart in tests."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.engines.conftest import free_port


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def tool(arguments: str, index: int = 0, name: str = "run_command") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return delta(tool_calls=[{"index": index, "id": "call_0", "function": function}])


@dataclass
class ChatServer:
    """Answers requests in order from `answers`: a status with headers, or a list of events.

    In a list, bytes are sent as they are, a number is a pause in seconds, `"drop"` cuts the
    connection, and `"stay"` as the last one leaves the stream open when all is said.
    """

    answers: list[Any] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    rollouts: list[str] = field(default_factory=list)
    """What each request's header names."""
    allowed: frozenset[str] = frozenset()
    """Fields that a request may have; any other is refused by its name. Empty: all."""
    headers: list[dict[str, str]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client left in mid-stream."""
    ports: list[int] = field(default_factory=list)
    """Of the client, by request: the same port is the same connection."""
    pausing: threading.Event = field(default_factory=threading.Event)
    """Set when a pause has begun."""

    def start(self) -> None:
        port = free_port()
        app = Starlette(
            routes=[
                Route("/v1/chat/completions", self.answer, methods=["POST"]),
                Route("/v1/completions", self.answer, methods=["POST"]),
                Route("/v1/models", self.models),
            ]
        )
        self.server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
        self.url = f"http://127.0.0.1:{port}/v1"
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            threading.Event().wait(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": []})

    async def answer(self, request: Request) -> Response:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("authorization", ""))
        self.rollouts.append(request.headers.get("x-houston-rollout", ""))
        self.headers.append(dict(request.headers))
        if request.client:
            self.ports.append(request.client.port)
        body = self.asked[-1]
        wrong = sorted(body.keys() - self.allowed) if self.allowed else []
        if wrong:
            message = f"Unrecognized request argument supplied: {wrong[0]}"
            error = {"message": message, "type": "invalid_request_error", "code": None}
            return JSONResponse({"error": error}, 400)
        answer = self.answers.pop(0)
        if isinstance(answer, dict):
            return JSONResponse(answer)
        if isinstance(answer, tuple) and isinstance(answer[1], str):
            return Response(answer[1], answer[0], media_type="application/json")
        if isinstance(answer, tuple):
            status, headers = answer
            return JSONResponse({"error": {"message": "not now"}}, status, headers)
        return StreamingResponse(self.stream(answer), media_type="text/event-stream")

    async def stream(self, events: list[Any]) -> AsyncIterator[bytes]:
        try:
            for event in events:
                if event == "drop":
                    raise ConnectionError("cut on order")
                if event == "stay":
                    continue
                if isinstance(event, float):
                    self.pausing.set()
                    await asyncio.sleep(event)
                elif isinstance(event, bytes):
                    yield event
                else:
                    yield f"data: {json.dumps(event)}\n\n".encode()
            yield b"data: [DONE]\n\n"
            if events[-1] == "stay":
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.left.set()
            raise
