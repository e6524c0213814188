"""An adapter is loaded into a server that is asked over HTTP, and never taken for another one."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.policies import adapter_loader, policy_files
from houston_shared.errors import HoustonError


class Vllm(ThreadingHTTPServer):
    """Answers as vLLM does, with what was loaded into it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.adapters: dict[str, str] = {}
        self.loads = 0
        self._read: dict[str, bytes] = {}

    @property
    def server(self) -> adapter_loader.AdapterServer:
        return adapter_loader.AdapterServer("far", f"http://127.0.0.1:{self.server_port}/v1")

    def weights(self, name: str) -> bytes:
        """What it has read, as it was then."""
        return self._read[name]

    def load(self, name: str, folder: str) -> None:
        self.loads += 1
        self.adapters[name] = folder
        file = Path(folder, "adapter_model.safetensors")
        self._read[name] = file.read_bytes() if file.exists() else b""


class _Asked(BaseHTTPRequestHandler):
    server: Vllm

    def do_GET(self) -> None:
        loras = [
            {"id": name, "parent": "base", "root": root}
            for name, root in self.server.adapters.items()
        ]
        self._say({"data": [{"id": "base", "root": "/models/base"}, *loras]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/load_lora_adapter":
            self.server.load(body["lora_name"], body["lora_path"])
        if self.path == "/v1/unload_lora_adapter":
            del self.server.adapters[body["lora_name"]]
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
    server = Vllm()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_an_adapter_of_another_home_is_not_taken_for_ours(vllm: Vllm, tmp_path: Path) -> None:
    """Both homes call what they trained first policy@2; the ledger would name the wrong one."""
    theirs, ours = tmp_path / "theirs" / "policy@2", tmp_path / "ours" / "policy@2"
    by_hash = tmp_path / "theirs" / ".by-hash" / "aa" / "policy@2"
    for root, content in ((theirs, ""), (theirs, "bb"), (by_hash, "bb")):
        vllm.adapters["policy@2"] = str(root)
        with pytest.raises(HoustonError, match="already has another policy@2") as refused:
            adapter_loader.load_adapter(vllm.server, "policy@2", ours, {}, {}, content)
        assert str(root) in refused.value.cause
        assert vllm.adapters == {"policy@2": str(root)}, "it is the other home's"


def test_ours_is_tried_again_and_not_loaded_twice(vllm: Vllm, tmp_path: Path) -> None:
    ours = tmp_path / "policy@2"
    assert adapter_loader.load_adapter(vllm.server, "policy@2", ours, {}, {}) == ()
    assert adapter_loader.load_adapter(vllm.server, "policy@2", ours, {}, {}) == ()
    assert vllm.adapters == {"policy@2": str(ours)}


def policy(folder: Path, weights: bytes) -> tuple[Path, str]:
    """A policy's folder, and the hash of what it holds."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder, policy_files.combine_hashes(policy_files.hash_files(folder.iterdir()))


@pytest.mark.parametrize("by_name", [False, True], ids=["by its hash", "by its folder's name"])
def test_what_a_home_at_the_same_path_has_left_is_replaced(
    vllm: Vllm, tmp_path: Path, by_name: bool
) -> None:
    """The engine outlives the home: its weights would be sampled under the new one's name."""
    place = tmp_path / "home" / "policies" / "policy@2"
    folder, old = policy(place, b"old")
    adapter_loader.load_adapter(vllm.server, "policy@2", folder, {}, {}, "" if by_name else old)
    shutil.rmtree(tmp_path / "home")
    folder, new = policy(place, b"new")
    assert adapter_loader.load_adapter(vllm.server, "policy@2", folder, {}, {}, new) == ()
    assert (vllm.loads, vllm.weights("policy@2")) == (2, b"new")
    adapter_loader.load_adapter(vllm.server, "policy@2", folder, {}, {}, new)
    assert vllm.loads == 2, "the same weights are not loaded twice"


def test_the_same_weights_at_another_name_of_the_home_stay(vllm: Vllm, tmp_path: Path) -> None:
    folder, content = policy(tmp_path / "home" / "policies" / "policy@2", b"same")
    adapter_loader.load_adapter(vllm.server, "policy@2", folder, {}, {}, content)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    again = tmp_path / "link" / "policies" / "policy@2"
    for known_hash in (content, ""):
        adapter_loader.load_adapter(vllm.server, "policy@2", again, {}, {}, known_hash)
    assert vllm.loads == 1


def test_a_link_that_cannot_be_made_is_said(vllm: Vllm, tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match=r"to load the adapter from, .*, cannot be made"):
        adapter_loader.load_adapter(
            vllm.server, "policy@2", tmp_path / "gone" / "policy@2", {}, {}, "ab"
        )
    assert vllm.adapters == {} and not (tmp_path / "gone").exists()
