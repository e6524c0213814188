"""A real HTTP server that answers as search providers do, well and badly."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

KEY = "sk-search-0123456789"


def results(query: str, first: int, count: int) -> list[tuple[str, str, str]]:
    return [
        (f"Page {n} on {query}", f"https://example.org/{n}", f"About\n {query}, page {n}.")
        for n in range(first, first + count)
    ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Providers"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self._answer(parts.path)

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer(self.path)

    def log_message(self, *_: Any) -> None:
        """Silent."""

    def _answer(self, path: str) -> None:
        self.server.paths.append(path)
        getattr(self, f"at_{path.strip('/').replace('/', '_').replace('-', '_')}")()

    def send(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def at_serper(self) -> None:
        if self.headers["X-API-KEY"] != KEY:
            return self.send({"message": "Unauthorized.", "statusCode": 403}, 403)
        found = results(self.asked["q"], 1, min(self.asked["num"], 12))
        organic = [{"title": t, "link": u, "snippet": s, "position": 1} for t, u, s in found]
        self.send({"searchParameters": {"q": self.asked["q"]}, "organic": [*organic, "odd", None]})

    def at_serper_empty(self) -> None:
        self.send({"searchParameters": {"q": self.asked["q"]}, "credits": 1})

    def at_tavily(self) -> None:
        if self.headers["authorization"] != f"Bearer {KEY}":
            words = f"Unauthorized: missing or invalid API key {self.headers['authorization']}"
            return self.send({"detail": {"error": words}}, 401)
        if self.asked["max_results"] > 20:
            return self.send({"detail": {"error": "max_results must be at most 20"}}, 400)
        found = results(self.asked["query"], 1, self.asked["max_results"])
        self.send({"results": [{"title": t, "url": u, "content": s} for t, u, s in found]})

    def at_searx_search(self) -> None:
        if self.asked.get("format") != "json":
            return self.send(b"<html></html>", 403)
        page = int(self.asked["pageno"])
        found = results(self.asked["q"], 10 * page - 9, 10) if page <= 3 else []
        found += results(self.asked["q"], 1, 1)  # pages overlap
        self.send({"results": [{"title": t, "url": u, "content": s} for t, u, s in found]})

    def at_searx_dark_search(self) -> None:
        self.send({"results": [], "unresponsive_engines": [["google", "timeout"]]})

    def at_limited(self) -> None:
        if self.server.paths.count("/limited") % 2:
            return self.send({"message": "Too many"}, 429, {"retry-after": "0.1"})
        self.send({"organic": [{"title": "Then", "link": "https://example.org", "snippet": ""}]})

    def at_limited_long(self) -> None:
        self.send({"message": "Too many requests"}, 429, {"retry-after": "120"})

    def at_limited_until(self) -> None:
        self.send({}, 429, {"retry-after": "Wed, 21 Oct 2115 07:28:00 GMT"})

    def at_failing(self) -> None:
        self.send(b"<h1>Bad gateway</h1>", 502, {"retry-after": "0"})

    def at_astray(self) -> None:
        self.send(b"", 302, {"location": "http://xn--/"})

    def at_moved(self) -> None:
        self.send(b"", 302, {"location": "http://127.0.0.1:1/elsewhere"})

    def at_half(self) -> None:
        self.send(b'{"organic": [{"title": "ha')

    def at_list(self) -> None:
        self.send([1, 2, 3])

    def at_other(self) -> None:
        self.send({"hello": "world"})

    def at_deep(self) -> None:
        self.send(b"[" * 100_000)

    def at_strange(self) -> None:
        organic = [{"title": 7, "link": ["x"], "snippet": None}, {"link": "https://e.org", "x": 1}]
        odd = b'{"organic": [{"title": "half \\ud800 pair", "link": "https://f.org"}]}'
        self.send(odd if self.asked["q"] == "odd" else {"organic": organic})

    def at_hanging_search(self) -> None:
        self.at_hanging()

    def at_hanging(self) -> None:
        self.server.let_go.wait(20)
        self.close_connection = True

    def at_gone(self) -> None:
        self.close_connection = True  # no answer at all

    def at_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self._send_on(b"x" * 65_536, 0)

    def at_dripping(self) -> None:
        self.send_response(200)
        self.end_headers()
        self._send_on(b" ", 0.02)

    def _send_on(self, piece: bytes, pause: float) -> None:
        self.close_connection = True
        while not self.server.let_go.is_set():
            try:
                self.wfile.write(piece)
            except OSError:
                return
            time.sleep(pause)


class Providers(ThreadingHTTPServer):
    """The server; `paths` are what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: list[str] = []
        self.let_go = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


@pytest.fixture(scope="session")
def providers() -> Iterator[Providers]:
    server = Providers()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()
    thread.join(5)
