"""A judge with a known rubric for two suites: a chat endpoint that scores by the world's rule.

It stands for a strong model, which this machine cannot run, so that `houston label` is used as it
is with one. It reads what a judge is shown, the text of one decision, and nothing else.

In worlds of words opening the right box is worth 1, and so are reading and entering what was read
in it, each once and in that order; looking before anything was opened is worth 0.25, and all else
0. On `small-workstation` the right write is worth 1 once what it needs was read, and so are the
read of a file that the task names and finishing after that write; the first list and each new file
that is read in search of a place are worth 0.5, and all else 0.

What is sure must not be worth more than what has to be found out. With 0.5 for looking and 0.25 for
going on in a wrong box, a policy that was rewarded by decisions alone learned to read forever: the
right box, one of eight, earns an eighth of 1 at first. And what is not checked is learned: while
entering was worth 1 whatever was entered, policies came to enter words at random.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from houston_daemon.suites.file_tasks import PLACES, FileTask, file_task
from houston_daemon.suites.word_worlds import LEVELS, word_world

WORLDS = 500
"""Enough that each item is sought in one of them."""
FILE_TASKS = 2_000
"""More than are ever labelled."""
_FRAME = re.compile(r"^\[(\w+) begins\]\n(.*)\n\[\1 ends\]$", re.DOTALL | re.MULTILINE)
_STEP = re.compile(r"^Step \d+(?:, the decision)?:\n(.*)$", re.MULTILINE)
_FILE_STEP = re.compile(r"^Step \d+(?:, the decision)?:\n(.*?)(?=^Step \d+|\Z)", re.M | re.S)
_FILE_ACTION = re.compile(r"^(list|read|write|finish)\b(.*)", re.M | re.S)
_PAPER = re.compile(r"^paper says (.*)$", re.MULTILINE)


@cache
def right_boxes() -> dict[str, str]:
    """By what a world asks, the box that holds it."""
    worlds = (word_world(LEVELS["medium"], "train", index) for index in range(WORLDS))
    return {world.instructions: world.right for world in worlds}


def worth_of_word(text: str) -> float:
    """What the rubric gives the decision of a text (`prompts.decision_text`)."""
    *earlier, decision = _STEP.findall(text)
    right = right_boxes()[_instructions(text)]
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


def _instructions(text: str) -> str:
    return text.splitlines()[1].strip()


class FileDecision(NamedTuple):
    """One decision in a small workstation, with what came of it."""

    action: str
    argument: str
    result: str

    @classmethod
    def of(cls, block: str) -> "FileDecision":
        """From what stands below `Step N:`; a thought before the action is passed over."""
        said, _, result = block.partition("\nResult:\n")
        action = _FILE_ACTION.search(said)
        return cls(action[1], action[2].strip(), result.strip()) if action else cls("", "", "")


@cache
def file_tasks() -> dict[str, FileTask]:
    """By its instructions, a training task; those with the same ones differ in their files only."""
    tasks = (file_task("train", index) for index in range(FILE_TASKS))
    return {task.instructions: task for task in tasks}


def worth_of_file_action(text: str) -> float:
    """What the rubric gives the decision of a text (`prompts.decision_text`)."""
    task = file_tasks()[_instructions(text)]
    *earlier, decision = map(FileDecision.of, _FILE_STEP.findall(text))
    source = _source(task, earlier)
    wanted = _wanted_write(task, source)
    written = any(("write", wanted) == before[:2] for before in earlier)
    searched = task.kind in ("find", "change")
    if decision.action == "write":
        return float(decision.argument == wanted and not written)
    if decision.action == "finish":
        return float(written)
    if any(before[:2] == decision[:2] for before in earlier):
        return 0.0
    if decision.action == "list":
        return 0.5 if searched else 0.0
    if decision.action == "read" and task.kind == "copy":
        return float(decision.argument == task.solution[0]["arguments"]["path"])
    names = [
        name for before in earlier if before.action == "list" for name in before.result.split()
    ]
    return 0.5 if searched and source is None and decision.argument in names else 0.0


def _source(task: FileTask, earlier: Sequence[FileDecision]) -> FileDecision | None:
    """The read of the file that the task is about, if it was read."""
    place = next((word for word in PLACES["train"] if word in task.instructions), "")
    for read in earlier:
        named = task.kind == "copy" and read.argument == task.solution[0]["arguments"]["path"]
        if read.action == "read" and (named or (place and read.result.startswith(f"{place}:"))):
            return read
    return None


def _wanted_write(task: FileTask, source: FileDecision | None) -> str:
    """The argument of the right write as the text has it; empty where nobody can know it yet."""
    write = next(call["arguments"] for call in task.solution if call["name"] == "write")
    if task.kind == "write":
        return f"path: {write['path']}\ntext: {write['text']}"
    number = re.search(r"\d+", source.result) if source else None
    if source is None or number is None:
        return ""
    if task.kind == "change":
        new = re.findall(r"\d+", task.instructions)[-1]
        return f"path: {source.argument}\ntext: {source.result.replace(number[0], new)}"
    return f"path: {write['path']}\ntext: {number[0]}"


RUBRICS: dict[str, Callable[[str], float]] = {
    "word-worlds": worth_of_word,
    "small-workstation": worth_of_file_action,
}
"""By suite."""


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
    rubric: Callable[[str], float]

    def do_GET(self) -> None:
        self.send("application/json", json.dumps({"data": [{"id": "rule"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        framed = _FRAME.search(body["messages"][-1]["content"])
        assert framed is not None, "a decision stands in its frame"
        answer = {"reason": "by the rule of the world", "score": type(self).rubric(framed[2])}
        events = [_event({"content": json.dumps(answer)}), _event({}, "stop")]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        self.send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))


def _event(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@contextmanager
def scripted_judge(port: int, suite: str = "word-worlds") -> Iterator[None]:
    """The endpoint, while the context lasts, at `http://127.0.0.1:port/v1`."""
    handler = type("RubricHandler", (_Handler,), {"rubric": staticmethod(RUBRICS[suite])})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
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
