"""A judge with a known rubric for worlds of words: a chat endpoint that scores by the world's rule.

It stands for a strong model, which this machine cannot run, so that `houston label` is used as it
is with one. Opening the right box is worth 1, and so are reading and entering what was read in it,
each once and in that order; looking before anything was opened is worth 0.25, and everything else
0. It reads what a judge is shown, the text of one decision, and nothing else.

What is sure must not be worth more than what has to be found out. With 0.5 for looking and 0.25 for
going on in a wrong box, a policy that was rewarded by decisions alone learned to read forever: the
right box, one of eight, earns an eighth of 1 at first. And what is not checked is learned: while
entering was worth 1 whatever was entered, policies came to enter words at random.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from houston_daemon.suites.word_worlds import LEVELS, word_world

WORLDS = 500
"""Enough that each item is sought in one of them."""
_FRAME = re.compile(r"^\[(\w+) begins\]\n(.*)\n\[\1 ends\]$", re.DOTALL | re.MULTILINE)
_STEP = re.compile(r"^Step \d+(?:, the decision)?:\n(.*)$", re.MULTILINE)
_PAPER = re.compile(r"^paper says (.*)$", re.MULTILINE)


@cache
def right_boxes() -> dict[str, str]:
    """By what a world asks, the box that holds it."""
    worlds = (word_world(LEVELS["medium"], "train", index) for index in range(WORLDS))
    return {world.instructions: world.right for world in worlds}


def worth_of(text: str) -> float:
    """What the rubric gives the decision of a text (`prompts.decision_text`)."""
    *earlier, decision = _STEP.findall(text)
    right = right_boxes()[text.splitlines()[1].strip()]
    opened = next(
        (each.partition(" ")[2] for each in reversed(earlier) if each.startswith("open ")), ""
    )
    action, _, argument = decision.partition(" ")
    if action == "open":
        return float(argument == right and argument != opened)
    if action == "look":
        return 0.0 if earlier else 0.25
    before = {"read": "open", "enter": "read"}.get(action)
    last = earlier[-1].partition(" ")[0] if earlier else ""
    paper = _PAPER.findall(text)[-1:]
    said = [argument] == paper if action == "enter" else not argument
    return float(opened == right and last == before and said)


class QuietHandler(BaseHTTPRequestHandler):
    """Sends whole answers, and writes no line for each request."""

    def send(self, kind: str, text: str) -> None:
        """Answer with a text. kind: its media type."""
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """A line for each request would bury what is measured."""


class _Handler(QuietHandler):
    def do_GET(self) -> None:
        self.send("application/json", json.dumps({"data": [{"id": "rule"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        framed = _FRAME.search(body["messages"][-1]["content"])
        assert framed is not None, "a decision stands in its frame"
        answer = {"reason": "by the rule of the world", "score": worth_of(framed[2])}
        events = [_event({"content": json.dumps(answer)}), _event({}, "stop")]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        self.send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))


def _event(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@contextmanager
def scripted_judge(port: int) -> Iterator[None]:
    """The endpoint, while the context lasts, at `http://127.0.0.1:port/v1`."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def judge_engine(port: int) -> dict[str, Any]:
    """Its part of a configuration."""
    url = f"http://127.0.0.1:{port}/v1"
    return {"kind": "chat", "url": url, "model": "rule", "window": 32_000}
