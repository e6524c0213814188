"""Real servers for the engine tests: the embedded one and vLLM, started once per session."""

import platform
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from houston_daemon.engines.engine_process import EngineProcess
from houston_daemon.engines.local_model import fetch_model
from houston_daemon.engines.token_engine import TokenEngine
from houston_daemon.engines.vllm_install import install_vllm
from houston_daemon.engines.vllm_serve import vllm_command

START_SECONDS = 720
"""vLLM alone is ready in 28 s; new on a disk, and beside other tests, it took more than 240 s."""


class Served:
    """A server under test: a process that can be killed and started again at the same address."""

    def __init__(self, kind: str, process: EngineProcess, model: Path) -> None:
        self.kind = kind
        self.process = process
        self.tokenizer_file = model / "tokenizer.json"
        self.tokenizer = Tokenizer.from_file(str(self.tokenizer_file))

    def start(self) -> None:
        self.process.start()
        deadline = time.monotonic() + START_SECONDS
        while not self.process.healthy():
            assert self.process.alive(), self.process.failing_line()
            assert time.monotonic() < deadline, f"{self.kind} is not ready after {START_SECONDS} s"
            time.sleep(0.2)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text whose markup means what it says."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def serve(kind: str, command: list[str], port: int, folder: Path, model: Path) -> Iterator[Served]:
    process = EngineProcess(
        kind, command, f"http://127.0.0.1:{port}/v1", folder / "state.json", folder / "engine.log"
    )
    served = Served(kind, process, model)
    try:
        served.start()
        yield served
    finally:
        process.stop()


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return fetch_model(print)


@pytest.fixture(scope="session")
def embedded(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    command = [sys.executable, "-m", "houston_daemon.engines.embedded"]
    command += ["--model", str(model_folder), "--port", str(port), "--die-with-parent"]
    folder = tmp_path_factory.mktemp("embedded")
    yield from serve("embedded", command, port, folder, model_folder)


@pytest.fixture(scope="session")
def vllm(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    flags = Path("/proc/cpuinfo").read_text().split()
    if platform.machine() == "x86_64" and "avx2" not in flags:
        pytest.skip("vLLM needs a processor with AVX2")
    install_vllm(print)
    port = free_port()
    command = vllm_command(model_folder, port, eager=True)
    yield from serve("vllm", command, port, tmp_path_factory.mktemp("vllm"), model_folder)


KINDS = [
    pytest.param("embedded", marks=pytest.mark.model),
    pytest.param(
        "vllm",
        marks=[pytest.mark.slow, pytest.mark.model, pytest.mark.vllm, pytest.mark.timeout(900)],
    ),
]


@pytest.fixture(params=KINDS)
def served(request: pytest.FixtureRequest) -> Served:
    """Every scenario that asks for it runs against both servers."""
    made: Served = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def engine(served: Served) -> AsyncIterator[TokenEngine]:
    made = TokenEngine(served.kind, served.process.url)
    await made.ready()
    yield made
    await made.close()
