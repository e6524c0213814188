"""A server of S3 (moto's, a real process) behind a line that can be cut, refused or slowed down.

What a client asks goes to the server as it is, unless `Line.fault` says otherwise: then the line
answers as S3 does when it refuses, or is cut in the middle of an upload.
"""

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

KEY_ID, SECRET = "houstontestkey01", "a-secret-that-nobody-may-read-99"
Fault = Literal["", "cut", "gone", "forbidden", "quota"]
_ERRORS = {
    "forbidden": (403, "AccessDenied", "Access Denied"),
    "quota": (403, "QuotaExceeded", "The quota of the bucket is spent."),
}


class Line:
    """The line to a server, at `url`."""

    def __init__(self, port: int) -> None:
        """port: the server's."""
        self.fault: Fault = ""
        self.uploads = 0
        """Objects that clients began to write."""
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def forward(self) -> None:
                line._answer(self, port)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, port: int) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        is_upload = request.command == "PUT"
        self.uploads += is_upload
        if self.fault == "gone" or (self.fault == "cut" and is_upload):
            request.rfile.read(length // 2)
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
            return
        body = request.rfile.read(length)
        if self.fault in _ERRORS and is_upload:
            self._refuse(request, *_ERRORS[self.fault])
            return
        server = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        server.request(request.command, request.path, body, dict(request.headers.items()))
        answer = server.getresponse()
        data = answer.read()
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                request.send_header(name, value)
        is_head = request.command == "HEAD"
        size = answer.getheader("Content-Length") if is_head else str(len(data))
        request.send_header("Content-Length", size or "0")
        request.end_headers()
        request.wfile.write(data)
        server.close()

    def _refuse(
        self, request: BaseHTTPRequestHandler, status: int, code: str, message: str
    ) -> None:
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        request.send_response_only(status)
        request.send_header("Content-Type", "application/xml")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@contextlib.contextmanager
def served() -> Iterator[Line]:
    """A server of its own, and the line to it."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_open(port, process)
        line = Line(port)
        try:
            yield line
        finally:
            line.close()
    finally:
        process.kill()
        process.wait()


def _wait_until_open(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("moto's server did not start")


def environment(line: Line) -> dict[str, str]:
    """What a client of the server has in its environment."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": line.url,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def make_bucket(line: Line, name: str) -> None:
    """An empty bucket."""
    import boto3  # of moto's own packages

    boto3.client(
        "s3",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        endpoint_url=line.url,
        region_name="us-east-1",
    ).create_bucket(Bucket=name)
