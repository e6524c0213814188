"""A place between workers and an engine that keeps every request and can go wrong on order.

It passes requests on to the engine behind it and answers back byte for byte. What it does with a
request before that is the test's word: hold it until its sender is gone, or answer with an error.
"""

import contextlib
import select
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Fate = Literal["pass", "hold"] | tuple[int, str]
"""What becomes of a request: `hold` never answers it, (status, body) answers for the engine."""
HELD_SECONDS = 60.0


class Tap:
    """Listens on the loopback in front of `behind` (a base URL)."""

    def __init__(self, behind: str, port: int = 0) -> None:
        """port: where it listens; 0 takes a free one."""
        self.fate: Callable[[bytes], Fate] = lambda body: "pass"
        """Asked for every request to sample, with its body."""
        self.bodies: list[bytes] = []
        """Bodies of requests to sample, in order of their coming."""
        self.held = threading.Semaphore(0)
        """Raised for every request that is being held."""
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                self._pass_on(urllib.request.Request(behind + self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                tap.bodies.append(body)
                match tap.fate(body):
                    case "pass":
                        kind = {"content-type": "application/json"}
                        self._pass_on(urllib.request.Request(behind + self.path, body, kind))
                    case "hold":
                        tap.held.release()
                        select.select([self.connection], [], [], HELD_SECONDS)
                    case (status, said):
                        self._answer(status, said.encode())

            def _pass_on(self, request: urllib.request.Request) -> None:
                try:
                    with urllib.request.urlopen(request, timeout=HELD_SECONDS) as answer:
                        self._answer(answer.status, answer.read())
                except urllib.error.HTTPError as problem:
                    self._answer(problem.code, problem.read())

            def _answer(self, status: int, body: bytes) -> None:
                with contextlib.suppress(ConnectionError):  # who asked may be dead by now
                    self.send_response(status)
                    self.send_header("retry-after", "0")  # errors are met at once, not in 8 s
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return  # nobody reads it

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def tapped(behind: str) -> Iterator[Tap]:
    """A tap that is closed at the end."""
    made = Tap(behind)
    try:
        yield made
    finally:
        made.close()


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
