"""A real recorder in a thread, real worker processes, and a wire between them that can be cut.

The supervisor's part (assigning, starting again) is done by hand, so that a test decides when a
worker dies: at the n-th message, before the recorder sees it or before the worker sees the answer.
"""

import contextlib
import json
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import zmq

from houston_daemon.agent import rollout_worker
from houston_daemon.recorder.recorder_thread import Recorder
from houston_shared import wire
from houston_shared.config import Configuration
from houston_shared.home import Home
from houston_shared.records import RoleEngine, RolloutSpec, StepRecord
from houston_shared.task import load_task
from tests.support.terminals import end_terminals

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["houston_daemon.agent.worker_preload"])
UNCOUNTED = ("Hello", "ReadSteps", "Heartbeat")


class Rig:
    """One home with its recorder; rollouts are run by worker processes."""

    def __init__(self, folder: Path, configuration: Configuration | None = None) -> None:
        self.folder = folder
        self.configuration = configuration or Configuration()
        self.home = Home(folder / "home")
        self.home.path.mkdir(parents=True)
        self.told: list[Any] = []
        self.recorder = Recorder(self.home, self.configuration, self.told.append)
        self.recorder.start()
        self._context = zmq.Context()
        self._control = self._context.socket(zmq.DEALER)
        self._control.connect(self.home.socket("control"))
        self._number = 0
        self._alive: list[Any] = []

    def close(self) -> None:
        for process in self._alive:
            if process.is_alive():
                process.kill()
            process.join(60)
        end_terminals(self.folder / "host")
        self.recorder.stop()
        self._context.destroy(linger=0)

    def restart(self) -> None:
        """Stop the recorder, and start another one on the same home."""
        self.recorder.stop()
        self.recorder = Recorder(self.home, self.configuration, self.told.append)
        self.recorder.start()

    def ask(self, message: Any) -> Any:
        """Say something as a person."""
        self._number += 1
        number = self._number.to_bytes(8, "big")
        self._control.send_multipart([number, wire.encode_message(message)])
        assert self._control.poll(10_000), "the recorder answers"
        seen, body = self._control.recv_multipart()
        assert seen == number
        reply = wire.control_reply_decoder.decode(body)
        assert not isinstance(reply, wire.Denied), reply
        return reply

    def rollout(
        self,
        script: list[dict[str, Any]] | None = None,
        *,
        task: str = "",
        settings: dict[str, Any] | None = None,
        environment: str = "null",
        name: str = "probe",
        files: dict[str, str] | None = None,
        purify: dict[str, Any] | None = None,
        role_engines: dict[str, RoleEngine] | None = None,
        without_memory: bool = False,
    ) -> str:
        """Queue a rollout of a task by a script or an engine's settings; its id."""
        folder = self.folder / "tasks" / name
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        for path, text in (files or {"README.md": "Hello.\n"}).items():
            (folder / "workspace" / path).write_text(text)
        (folder / "task.toml").write_text(
            f'name = "{name}"\ninstructions = "Do the thing."\nenvironment = "{environment}"\n'
            f'workspace.source = "workspace"\n{task}'
        )
        if script is not None:
            file = self.folder / f"{name}.jsonl"
            file.write_text("".join(json.dumps(line) + "\n" for line in script))
            settings = {"kind": "script", "path": str(file)}
        loaded = load_task(folder)
        spec = RolloutSpec(
            rollout="",
            task=loaded.record(),
            engine="script" if script is not None else "engine",
            engine_settings=settings or {},
            host_root=str(self.folder / "host"),
            hidden=(str(self.home.path),),
            thoughts=loaded.task.sampling.thoughts,
            purify=purify or {},
            role_engines=role_engines or {},
            without_memory=without_memory,
        )
        self._number += 1
        done = self.ask(wire.StartRollouts(request=f"request-{self._number}", specs=(spec,)))
        return str(done.rollouts[0])

    def work(self, rollout: str, endpoint: str = "") -> Any:
        """Assign the rollout and start a worker process for it."""
        return self.start(rollout_worker.main, rollout, endpoint=endpoint)

    def start(
        self, target: Callable[..., Any], rollout: str, *more: Any, endpoint: str = ""
    ) -> Any:
        """Assign the rollout and start a process: `target(arguments of a worker, *more)`."""
        assignment = self.recorder.assign(rollout)
        endpoint = endpoint or self.home.socket("ingest")
        words = ["--endpoint", endpoint, "--rollout", rollout, "--lease", str(assignment.lease)]
        process = _PROCESSES.Process(target=target, args=(words, *more))
        process.start()
        process.lease = assignment.lease
        self._alive.append(process)
        return process

    def run(self, rollout: str, seconds: float = 120) -> None:
        """Run a worker to its end."""
        process = self.work(rollout)
        process.join(seconds)
        assert process.exitcode == 0, f"the worker ended with {process.exitcode}"

    def kill(self, process: Any, rollout: str) -> None:
        process.kill()
        process.join(60)
        self.recorder.worker_ended(rollout, process.lease, "")

    def until(self, what: Callable[[], Any], seconds: float = 120, why: str = "") -> Any:
        """Wait until `what()` is true; the limit only bounds a hanging test."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := what():
                return value
            time.sleep(0.01)
        raise AssertionError(f"did not happen: {why}")

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(
            sqlite3.connect(f"file:{self.home.database}?mode=ro", uri=True)
        ) as connection:
            return connection.execute(sql, parameters).fetchall()

    def state(self, rollout: str) -> tuple[str, str]:
        """State and reason."""
        ((state, reason),) = self.query("SELECT state, reason FROM rollouts WHERE id=?", rollout)
        return state, reason

    def steps(self, rollout: str) -> list[StepRecord]:
        """All steps, read as any reader does."""
        from houston_shared.store import step_queries as queries
        from houston_shared.store.store_reader import Reader

        numbers = self.query(
            "SELECT step FROM steps WHERE rollout=? AND current ORDER BY step", rollout
        )
        with Reader(self.home) as reader:
            return [reader.run(queries.read_step(rollout, number)) for (number,) in numbers]

    def journal(self, rollout: str) -> list[tuple[Any, ...]]:
        """What the worker said, in order, without anything that depends on time."""
        rows = self.query(
            "SELECT step, attempt, part, kind, body FROM events"
            " WHERE rollout=? AND part IS NOT NULL ORDER BY seq",
            rollout,
        )
        return [(*row[:4], timeless(msgspec.msgpack.decode(row[4]))) for row in rows]


def timeless(value: Any) -> Any:
    """A body without times, and with the clock line of a tail blanked."""
    if isinstance(value, dict):
        dropped = {"seconds", "active_us", "deadline", "at", "parent_seq", "sample_seq"}
        return {k: timeless(v) for k, v in value.items() if k not in dropped}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, str) and "; active " in value:
        import re

        return re.sub(r"active [0-9:]+, [0-9:]+ left", "active", value)
    return value


class Wire:
    """A wire between a worker and the recorder; a subclass says what passes."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.endpoint = f"ipc://{rig.folder}/{name}"
        self._recorder = rig.home.socket("ingest")
        self._stop = threading.Event()
        self._bound = threading.Event()
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()
        assert self._bound.wait(60)

    def asks(self, number: bytes, body: bytes) -> bool:
        """Whether a worker's message reaches the recorder."""
        raise NotImplementedError

    def answers(self, number: bytes) -> bool:
        """Whether an answer reaches the worker."""
        raise NotImplementedError

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _pass(self) -> None:
        context = zmq.Context()
        front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        front.bind(self.endpoint)
        back.connect(self._recorder)
        self._bound.set()
        poller = zmq.Poller()
        poller.register(front, zmq.POLLIN)
        poller.register(back, zmq.POLLIN)
        identity = b""
        while not self._stop.is_set():
            ready = dict(poller.poll(20))
            if front in ready:
                identity, number, body = front.recv_multipart()
                if self.asks(number, body):
                    back.send_multipart([number, body])
            if back in ready:
                number, body = back.recv_multipart()
                if self.answers(number):
                    front.send_multipart([identity, number, body])
        context.destroy(linger=0)


class Cut(Wire):
    """Cut at the n-th message that counts.

    `before`: the recorder never sees the message. `after`: it does, and the worker never sees the
    answer. `reached` is set then; nothing passes any more.
    """

    def __init__(self, rig: Rig, at: int, where: Literal["before", "after"]) -> None:
        self.reached = threading.Event()
        self.message = ""
        self._at, self._where = at, where
        self._seen, self._number = 0, b""
        super().__init__(rig, f"cut-{at}-{where}")

    def asks(self, number: bytes, body: bytes) -> bool:
        kind = msgspec.msgpack.decode(body)["type"]
        if not self.reached.is_set() and kind not in UNCOUNTED:
            self._seen += 1
            if self._seen == self._at:
                self.message, self._number = kind, number
                if self._where == "before":
                    self.reached.set()
        return not self.reached.is_set()

    def answers(self, number: bytes) -> bool:
        if self._number and number == self._number:
            self.reached.set()
        return not self.reached.is_set()
