"""A real HTTP server on loopback that speaks ntfy's publish protocol (JSON; docs.ntfy.sh/publish).

`answer` decides what it says to the next messages; it can be taken away and come back at the same
port.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class NtfyServer:
    """Keeps what was published."""

    def __init__(self, port: int = 0) -> None:
        self.answer = 200
        self.received: list[dict[str, Any]] = []
        """Every publish request: topic, title, message; those that were refused, too."""
        self.arrived: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, topic: str, login: str = "") -> str:
        """As Apprise names a topic here."""
        return f"ntfy://{login}{'@' if login else ''}localhost:{self.port}/{topic}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.received.append(body)
                status = server.answer
                if status == 200:
                    server.arrived.append(body)
                    answer: dict[str, Any] = {"id": "x", "event": "message", **body}
                else:
                    reasons = {429: "limit reached: too many requests", 403: "forbidden"}
                    answer = {"code": 100 * status + 1, "http": status, "error": reasons[status]}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
