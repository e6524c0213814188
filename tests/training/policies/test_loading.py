"""An adapter is loaded into a server that is asked over HTTP, and never taken for another one."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.policies import loading
from houston_shared.errors import HoustonError


class Vllm(ThreadingHTTPServer):
    """Answers as vLLM does, with what was loaded into it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.adapters: dict[str, str] = {}

    @property
    def server(self) -> loading.Server:
        return loading.Server("far", f"http://127.0.0.1:{self.server_port}/v1")


class _Asked(BaseHTTPRequestHandler):
    server: Vllm

    def do_GET(self) -> None:
        loras = [
            {"id": name, "parent": "base", "root": root}
            for name, root in self.server.adapters.items()
        ]
        self._say({"data": [{"id": "base", "root": "/models/base"}, *loras]})

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/load_lora_adapter":
            self.server.adapters[said["lora_name"]] = said["lora_path"]
        if self.path == "/v1/unload_lora_adapter":
            del self.server.adapters[said["lora_name"]]
        self._say({"choices": [{"logprobs": {"token_logprobs": [-1.0]}}]})

    def _say(self, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def vllm() -> Iterator[Vllm]:
    made = Vllm()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(10)


def test_an_adapter_of_another_home_is_not_taken_for_ours(vllm: Vllm, tmp_path: Path) -> None:
    """Both homes call what they trained first policy@2; the ledger would name the wrong one."""
    theirs, ours = tmp_path / "theirs" / "policy@2", tmp_path / "ours" / "policy@2"
    vllm.adapters["policy@2"] = str(theirs)
    with pytest.raises(HoustonError, match="has another policy@2 already") as refused:
        loading.load(vllm.server, "policy@2", ours, {}, {})
    assert str(theirs) in refused.value.cause
    assert vllm.adapters == {"policy@2": str(theirs)}, "it is the other home's"


def test_ours_is_tried_again_and_not_loaded_twice(vllm: Vllm, tmp_path: Path) -> None:
    ours = tmp_path / "policy@2"
    assert loading.load(vllm.server, "policy@2", ours, {}, {}) == ()
    assert loading.load(vllm.server, "policy@2", ours, {}, {}) == ()
    assert vllm.adapters == {"policy@2": str(ours)}
