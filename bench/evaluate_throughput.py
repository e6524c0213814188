"""Questions a second of `houston evaluate`, beside `inspect eval`: same questions, same endpoint.

    python bench/evaluate_throughput.py [--questions 200] [--at-once 16] [--seconds 0.2]
                                        [--inspect PYTHON]

A chat endpoint in this process answers each request with the right sum after so many seconds, as a
tool call where it is given tools, else as text: what is measured is the harness, not a model. Both
ask each question once, so many at a time, and score every answer by the number. Houston journals
each rollout durably and runs it in an environment with a sandbox; Inspect keeps a log. Runs take
turns, and the seconds are those of the whole command. Inspect runs in a virtual environment of its
own: --inspect names its python, else one is made. Written to
bench/results/evaluate_throughput.json.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine
from bench.scripted_judge import QuietHandler

from houston_daemon.experiments.experiment_home import ExperimentHome

RESULTS = ROOT / "bench" / "results" / "evaluate_throughput.json"
ENGINE = "sums"
_SUM = re.compile(r"What is (\d+) plus (\d+)\?")
INSPECT_TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate

@task
def sums():
    return Task(dataset=json_dataset({file!r}), solver=generate(), scorer=match(numeric=True))
"""


class Endpoint(ThreadingHTTPServer):
    """Answers after a pause; counts what it was asked."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, pause: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pause = pause
        self.asked = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_GET(self) -> None:
        self.send("application/json", json.dumps({"data": [{"id": "sums"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += 1
        time.sleep(self.server.pause)
        found = _SUM.search(json.dumps(body["messages"]))
        assert found is not None, "a question is asked"
        answer = str(int(found[1]) + int(found[2]))
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if body.get("tools"):
            call = {"name": "answer", "arguments": json.dumps({"text": answer})}
            called = {"index": 0, "id": "call_0", "type": "function", "function": call}
            message = {"role": "assistant", "content": "", "tool_calls": [called]}
        finish = "tool_calls" if body.get("tools") else "stop"
        base = {"id": "0", "created": 0, "model": "sums"}
        if body.get("stream"):
            chunks = [_choice("delta", message, None), _choice("delta", {}, finish)]
            events = [{**base, "object": "chat.completion.chunk", **chunk} for chunk in chunks]
            lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
            return self.send("text/event-stream", f"{lines}data: [DONE]\n\n")
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {**base, "object": "chat.completion", "usage": usage}
        return self.send(
            "application/json", json.dumps({**whole, **_choice("message", message, finish)})
        )


def _choice(part: str, message: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, part: message, "finish_reason": finish}]}


@contextmanager
def endpoint(pause: float) -> Iterator[Endpoint]:
    """The endpoint, while the context lasts."""
    server = Endpoint(pause)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_questions(folder: Path, count: int) -> tuple[Path, Path]:
    """The same questions for Houston and for Inspect."""
    rows = [(f"What is {number} plus {7 * number}?", str(8 * number)) for number in range(count)]
    ours, theirs = folder / "sums.jsonl", folder / "inspect.jsonl"
    ours.write_text(
        "".join(json.dumps({"problem": asked, "answer": told}) + "\n" for asked, told in rows)
    )
    theirs.write_text(
        "".join(json.dumps({"input": asked, "target": told}) + "\n" for asked, told in rows)
    )
    return ours, theirs


def by_houston(home: ExperimentHome, file: Path, name: str) -> dict[str, float]:
    """Seconds of the command, and the share that was right."""
    began = time.monotonic()
    words = ("evaluate", str(file), "--engine", ENGINE, "--name", name, "--json", "-n", "100000")
    told = json.loads(home.run(*words, seconds=3600).splitlines()[-1])
    return {
        "seconds": time.monotonic() - began,
        "right": told["after"]["pass@1"]["value"],
    }


def by_inspect(python: Path, file: Path, url: str, at_once: int) -> dict[str, float]:
    """The same of `inspect eval`."""
    task = file.with_name("sums_task.py")
    task.write_text(INSPECT_TASK.format(file=str(file)))
    logs = file.with_name("logs")
    environment = {**os.environ, "SUMS_API_KEY": "none", "SUMS_BASE_URL": url}
    began = time.monotonic()
    subprocess.run(
        [str(python.with_name("inspect")), "eval", task.name, "--model", "openai-api/sums/sums",
         "--max-connections", str(at_once), "--log-dir", str(logs), "--log-format", "json",
         "--display", "none", "--max-samples", str(at_once)],
        env=environment, check=True, cwd=file.parent,
    )  # fmt: skip
    seconds = time.monotonic() - began
    newest = max(logs.glob("*.json"), key=lambda each: each.stat().st_mtime)
    scores = json.loads(newest.read_text())["results"]["scores"]
    return {"seconds": seconds, "right": scores[0]["metrics"]["accuracy"]["value"]}


def inspect_python(named: Path | None, folder: Path) -> Path:
    """The python of an environment that has inspect-ai; a new one where none is named."""
    if named is not None:
        return named.absolute()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "inspect")], check=True)
    python = folder / "inspect" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "inspect-ai", "openai"], check=True)
    return python


def measured(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs in turn, and their figures."""
    python = inspect_python(asked.inspect, folder)
    ours, theirs = write_questions(folder, asked.questions)
    runs: dict[str, list[dict[str, float]]] = {"houston": [], "inspect": []}
    with endpoint(asked.seconds) as served:
        engine = {"kind": "chat", "url": served.url, "model": "sums", "window": 32_000}
        home = ExperimentHome(folder, {ENGINE: engine}, at_once=asked.at_once)
        home.start()
        try:
            for turn in range(asked.turns):
                runs["houston"].append(by_houston(home, ours, f"turn-{turn}"))
                runs["inspect"].append(by_inspect(python, theirs, served.url, asked.at_once))
                print({name: each[-1] for name, each in runs.items()}, flush=True)
        finally:
            home.stop()
    listed = subprocess.run(
        [str(python), "-c", "from importlib.metadata import version; print(version('inspect-ai'))"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    speeds = {
        name: asked.questions / statistics.median(run["seconds"] for run in each)
        for name, each in runs.items()
    }
    return {
        "inspect_ai": listed.stdout.strip(),
        "questions_per_second": speeds,
        "houston_over_inspect": speeds["houston"] / speeds["inspect"],
        "at most, by the endpoint": asked.at_once / asked.seconds if asked.seconds else None,
        "runs": runs,
    }


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.2, help="of an answer")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--inspect", type=Path, metavar="PYTHON")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="houston-evaluate-") as temporary:
        folder = Path(temporary)
        about = machine(folder)
        how = {name: getattr(asked, name) for name in ("questions", "at_once", "seconds", "turns")}
        result = {**about, **how, **measured(asked, folder)}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    told = ("questions_per_second", "houston_over_inspect")
    print(json.dumps({name: result[name] for name in told}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
