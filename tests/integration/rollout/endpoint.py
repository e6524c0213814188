"""A real chat endpoint on loopback whose every answer a test decides, from what it was asked."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any]]
Decide = Callable[[dict[str, Any]], Answer]


class Endpoint:
    """Answers whole, without a stream; `decide` may be exchanged at any time."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        """The header `Authorization` of each."""
        self.accepted = 0
        self.refused = threading.Event()
        """Set by every refusal."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "chat", "url": self.url, "model": "some-model"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, {"data": []})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.keys.append(self.headers.get("authorization", ""))
                endpoint.asked.append(body)
                status, answer = endpoint.decide(body)
                if status == 200:
                    endpoint.accepted += 1
                else:
                    endpoint.refused.set()
                self._send(status, answer)

            def _send(self, status: int, answer: dict[str, Any]) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def call(name: str = "noop", **arguments: Any) -> Answer:
    """An answer with one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": "a", "type": "function", "function": function}]
    choice = {"message": {"content": "", "tool_calls": calls}, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    return 200, {"choices": [choice], "usage": usage}


def says(text: str) -> Answer:
    """An answer without a call."""
    return 200, {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}


def error(status: int, message: str, **more: Any) -> Answer:
    """A refusal in OpenAI's form."""
    return status, {"error": {"message": message, "type": "invalid_request_error", **more}}
