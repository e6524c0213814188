"""Figures of the daemon in Prometheus' text format: a file, an HTTP endpoint, or both.

A thread of its own gathers them once per interval and keeps the text; the endpoint hands out that
text and asks nobody. So neither a slow reader nor a full disk reaches the supervisor's loop. When
the recorder does not answer, `houston_recorder_up` is 0 and the figures of the database go on.
"""

import contextlib
import http.server
import os
import socket
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from houston_daemon.recorder.protocol import RecorderHandle
from houston_daemon.service.log import LOGGER
from houston_daemon.service.metrics_page import page
from houston_daemon.service.metrics_totals import Totals
from houston_shared.config import Loaded
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.wire_status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOK_SECONDS = 0.5
"""How long the address may be held after the end."""
PATIENCE_SECONDS = 2.0
"""How long the recorder may take to say how it stands, and a reader to send its request."""


class Figures:
    """Puts the page together, again and again; `text` is the newest."""

    def __init__(self, loaded: Loaded) -> None:
        """Take the address; nothing runs yet.

        Raises ConfigurationError when it cannot be had, or when the file is something else.
        """
        settings = loaded.config.metrics
        self.text = b""
        self._home = loaded.home
        self._seconds = settings.seconds
        self._file = _place(loaded.home, settings.file) if settings.file else None
        self._totals = Totals(loaded.home.database)
        self._problem = ""
        self._ended = threading.Event()
        self._server = _listen(settings.listen, _handler(self)) if settings.listen else None

    def start(self, recorder: RecorderHandle) -> None:
        """Begin, if the configuration asks for anything."""
        self._recorder = recorder
        if self._server is not None:
            _thread("houston-metrics-http", partial(self._serve, self._server))
        if self._server is not None or self._file is not None:
            _thread("houston-metrics", self._run)

    def stop(self) -> None:
        """Let the address go."""
        self._ended.set()
        if self._server is not None:
            self._server.server_close()

    def _serve(self, server: http.server.HTTPServer) -> None:
        """Until the end; `serve_forever` would turn without rest once its socket is closed."""
        server.timeout = LOOK_SECONDS
        with contextlib.suppress(ValueError):  # closed between two requests
            while not self._ended.is_set():
                server.handle_request()

    def _run(self) -> None:
        while True:
            self._gather()
            if self._ended.wait(self._seconds):
                return

    def _gather(self) -> None:
        try:
            self._totals.read()
            self.text = page(self._status(), self._totals, self._home).encode()
            if self._file is not None:
                _write(self._file, self.text)
        except (OSError, sqlite3.Error) as problem:
            if str(problem) != self._problem:  # a full disk: said once, tried again
                LOGGER.warning("figures could not be gathered: %s", problem)
            self._problem = str(problem)
        else:
            self._problem = ""

    def _status(self) -> Status | None:
        try:
            return self._recorder.status(PATIENCE_SECONDS)
        except (HoustonError, TimeoutError):
            return None


def _place(home: Home, name: str) -> Path:
    """The file, which is rewritten for ever: raises ConfigurationError where that would destroy
    anything. In a home only `*.prom` is nobody else's."""
    file = home.path / name
    inside = file.resolve().is_relative_to(home.path.resolve())
    if inside and file.suffix != ".prom":
        why = "what lies in the home is the daemon's, but for files that end in .prom"
    elif os.path.lexists(file) and (file.is_symlink() or not file.is_file()):
        why = "it is there, and no regular file"
    else:
        return file
    raise ConfigurationError(
        f"`metrics.file` = {name!r} cannot be written: {why}.",
        "The daemon was not started.",
        "Name a file of its own such as /var/lib/node_exporter/houston.prom.",
    )


def _write(file: Path, text: bytes) -> None:
    """Replace the file, so that a reader never sees half of it."""
    beside = file.with_name(file.name + ".new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as out:
        out.write(text)
    beside.replace(file)


def _thread(name: str, run: Callable[[], None]) -> None:
    threading.Thread(target=run, name=name, daemon=True).start()


def _listen(
    address: str, handler: type[http.server.BaseHTTPRequestHandler]
) -> http.server.HTTPServer:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return (_Server6 if ":" in host else http.server.HTTPServer)((host, int(port)), handler)
    except (OSError, ValueError, OverflowError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no HOST:PORT"
        raise ConfigurationError(
            f"`metrics.listen` = {address!r} cannot be listened at: {why}.",
            "The daemon was not started.",
            "Name a free address such as 127.0.0.1:9464.",
        ) from None


class _Server6(http.server.HTTPServer):
    address_family = socket.AF_INET6


def _handler(figures: Figures) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS  # one reader at a time: who says nothing is cut off

        def do_GET(self) -> None:
            """The newest page."""
            found = self.path.partition("?")[0] in ("/metrics", "/")
            text = figures.text if found else b"The figures are at /metrics.\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """A line for every scrape would fill the log."""

    return Handler
