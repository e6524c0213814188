"""A real web server on loopback whose pages misbehave in named ways, for tests of browsing."""

import gzip
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]
Page = Answer | Callable[["Handler"], Answer | None]
"""What a path gives; a function may also write by itself, and returns None then."""


class Handler(BaseHTTPRequestHandler):
    """Serves the pages of its server and counts the requests."""

    server: "Web"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.body = b""
        self._serve()

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self._serve()

    def _serve(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(self.path)
        page = self.server.pages.get(path, (404, {}, b"nothing here"))
        try:
            answer = page(self) if callable(page) else page
            if answer is not None:
                self.give(*answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def give(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, headers: dict[str, str]) -> None:
        """Headers of an answer without length: it ends with the connection."""
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Web(ThreadingHTTPServer):
    """The server; `pages` is what its paths give."""

    daemon_threads = True

    def __init__(self, address: str, port: int) -> None:
        super().__init__((address, port), Handler)
        self.address = address
        self.pages: dict[str, Page] = {}
        self.asked: list[str] = []
        self.over = threading.Event()

    def url(self, path: str = "/", host: str = "") -> str:
        return f"http://{host or self.address}:{self.server_port}{path}"


@contextmanager
def web(address: str = "127.0.0.1", port: int = 0) -> Iterator[Web]:
    """A running server; what still hangs ends with it."""
    server = Web(address, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def html(body: str, title: str = "A page", head: str = "") -> Answer:
    text = (
        f"<!doctype html><html><head><title>{title}</title>{head}</head><body>{body}</body></html>"
    )
    return 200, {"Content-Type": "text/html; charset=utf-8"}, text.encode()


def plain(text: str | bytes, kind: str = "text/plain; charset=utf-8") -> Answer:
    return 200, {"Content-Type": kind}, text.encode() if isinstance(text, str) else text


def moved(target: str, status: int = 302) -> Answer:
    return status, {"Location": target}, b""


def endless(handler: Handler) -> None:
    """A page that never ends, as fast as it is read."""
    handler.begin({"Content-Type": "text/plain"})
    while not handler.server.over.is_set():
        handler.wfile.write(b"and so on\n" * 1_000)


def dripping(handler: Handler) -> None:
    """A page that comes a byte at a time and never ends (slowloris)."""
    handler.begin({"Content-Type": "text/plain"})
    while not handler.server.over.wait(0.05):
        handler.wfile.write(b"x")
        handler.wfile.flush()


def silent(handler: Handler) -> None:
    """A server that takes the request and says nothing."""
    handler.server.over.wait(30)
    handler.close_connection = True


def bomb(handler: Handler) -> None:
    """A gigabyte of nothing in a megabyte of gzip."""
    handler.begin({"Content-Type": "text/plain", "Content-Encoding": "gzip"})
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    for _ in range(1_000):
        handler.wfile.write(packer.compress(bytes(1 << 20).replace(b"\0", b"0")))


def packed(text: str) -> Answer:
    return (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(text.encode()),
    )


def broken_off(handler: Handler) -> None:
    """Half of what was promised, then the connection ends."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/plain")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.close_connection = True


def fails_first(times: int, answer: Answer) -> Callable[[Handler], Answer]:
    """Busy for some requests, then well."""
    left = [times]

    def page(handler: Handler) -> Answer:
        left[0] -= 1
        return (503, {"Retry-After": "0"}, b"busy") if left[0] >= 0 else answer

    return page


def after(seconds: float, answer: Answer) -> Callable[[Handler], Answer]:
    """An answer that comes late."""

    def page(handler: Handler) -> Answer:
        time.sleep(seconds)
        return answer

    return page
