"""A real endpoint on loopback whose every answer a test decides, from what it was asked."""

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Page:
    """An answer that is no JSON, or has headers of its own."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/html"})
    silent: bool = False
    """Whether nothing is sent, until the endpoint is closed."""


Answer = tuple[int, dict[str, Any]] | Page
Decide = Callable[[dict[str, Any]], Answer]


class Endpoint:
    """Answers whole, without a stream; `decide` may be exchanged at any time.

    pages: what else it serves, by the end of the path; a list of no models where nothing is named.
    """

    def __init__(
        self, decide: Decide, port: int = 0, pages: dict[str, Callable[[Any], Answer]] | None = None
    ) -> None:
        self.decide = decide
        self.pages = pages or {}
        self.closing = threading.Event()
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        """The header `Authorization` of each."""
        self.accepted = 0
        self.refused = threading.Event()
        """Set by every refusal."""
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "chat", "url": self.url, "model": "some-model"}

    def page(self, path: str, body: Any) -> Answer | None:
        """What is served at a path that is not that of samples."""
        return next((make(body) for end, make in self.pages.items() if path.endswith(end)), None)

    def close_soon(self) -> None:
        """End it from within a request."""
        threading.Thread(target=self.close, daemon=True).start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(endpoint.page(self.path, None) or (200, {"data": []}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if (page := endpoint.page(self.path, body)) is not None:
                    return self._send(page)
                endpoint.keys.append(self.headers.get("authorization", ""))
                endpoint.asked.append(body)
                answer = endpoint.decide(body)
                page = _as_page(answer)
                if page.status == 200 and not page.silent:
                    endpoint.accepted += 1
                else:
                    endpoint.refused.set()
                self._send(page)

            def _send(self, answer: Answer) -> None:
                page = _as_page(answer)
                if page.silent:
                    endpoint.closing.wait()
                    return
                data = page.text.encode()
                self.send_response(page.status)
                for name, value in page.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it left
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _as_page(answer: Answer) -> Page:
    if isinstance(answer, Page):
        return answer
    status, body = answer
    return Page(json.dumps(body), status, {"content-type": "application/json"})


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
