"""A recorder in a test, and the two clients that speak to it: a worker's and a person's."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from houston_daemon.recorder.recorder_handle import RecorderEvent
from houston_daemon.recorder.recorder_thread import Recorder
from houston_shared import records, wire
from houston_shared.config import Configuration
from houston_shared.home import Home

TASK = 'name = "probe"\ninstructions = "Look around."\nsandbox = "none"\n'


class Client:
    """A DEALER: asks and waits for the answer; pushes are kept aside."""

    def __init__(self, home: Home, socket: str, decoder: Any, seconds: float = 60) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(home.socket(socket))
        self._decoder = decoder
        self._seconds = seconds
        self._request = 0
        self.pushes: list[wire.ControlPush] = []

    def send(self, message: wire.WireMessage) -> bytes:
        self._request += 1
        request = self._request.to_bytes(8, "big")
        self.socket.send_multipart([request, wire.encode_message(message)])
        return request

    def receive(self, request: bytes) -> Any:
        while True:
            found, reply = self.receive_any()
            if found == request:
                return reply

    def receive_any(self) -> tuple[bytes, Any]:
        if not self.socket.poll(int(self._seconds * 1000)):
            raise TimeoutError("the recorder did not answer")
        request, body = self.socket.recv_multipart()
        reply = self._decoder.decode(body)
        if request == wire.PUSH_REQUEST_ID and isinstance(reply, wire.ControlPush):
            self.pushes.append(reply)
        return request, reply

    def ask(self, message: wire.WireMessage) -> Any:
        return self.receive(self.send(message))

    def raw(self, *frames: bytes) -> Any:
        self.socket.send_multipart(frames)
        return self.receive_any()[1]

    def close(self) -> None:
        self._context.destroy(linger=0)


class Person(Client):
    """Somebody on `control`."""

    def __init__(self, home: Home, seconds: float = 60) -> None:
        super().__init__(home, "control", wire.control_reply_decoder, seconds)

    def start(self, n: int = 1, request: str = "", engine: str = "script:x") -> list[str]:
        """Queue rollouts of the probe task; their ids."""
        message = wire.StartRollouts(
            request=request or os.urandom(8).hex(), specs=(spec(engine),) * n
        )
        return list(self.ask(message).rollouts)

    def guide(self, rollout: str, text: str, id: str = "", mode: Any = "next") -> Any:
        message = wire.Guide(id=id or os.urandom(8).hex(), rollout=rollout, text=text, mode=mode)
        return self.ask(message)


class Worker(Client):
    """A worker of one rollout under one lease."""

    def __init__(self, home: Home, rollout: str, lease: int, seconds: float = 60) -> None:
        super().__init__(home, "ingest", wire.ingest_reply_decoder, seconds)
        self.rollout = rollout
        self.lease = lease
        self.active_us = 0

    def message(self, kind: Any, **fields: Any) -> Any:
        return kind(rollout=self.rollout, lease=self.lease, active_us=self.active_us, **fields)

    def say(self, kind: Any, **fields: Any) -> Any:
        return self.ask(self.message(kind, **fields))

    def insist(self, over: threading.Event, kind: Any, **fields: Any) -> Any:
        """Say it again until it is answered; None when it is not, and `over` is set."""
        while True:
            try:
                return self.say(kind, **fields)
            except TimeoutError:
                if over.is_set():
                    return None

    def hello(self) -> Any:
        return self.say(wire.Hello, pid=os.getpid())

    def sample(self, step: int, attempt: int = 1, **fields: Any) -> Any:
        body = sample(step, **fields)
        return self.say(wire.StoreSample, step=step, attempt=attempt, sample=body)

    def intent(self, step: int, index: int = 0, attempt: int = 1, deadline: float = 0) -> Any:
        body = records.CallIntent(call=call(step, index), deadline=deadline)
        return self.say(wire.StoreIntent, step=step, attempt=attempt, index=index, intent=body)

    def result(self, step: int, index: int = 0, attempt: int = 1, **fields: Any) -> Any:
        body = result(step, index, **fields)
        return self.say(wire.StoreResult, step=step, attempt=attempt, index=index, result=body)

    def observation(self, step: int, attempt: int = 1, **fields: Any) -> Any:
        body = records.ObservationBody(**{"tail": f"[step {step}]", **fields})
        return self.say(wire.StoreObservation, step=step, attempt=attempt, observation=body)

    def step(self, step: int, **fields: Any) -> Any:
        """A whole step with one call; the ack of its observation."""
        for ack in (self.sample(step), self.intent(step), self.result(step)):
            assert isinstance(ack, wire.Ack), ack
        return self.observation(step, **fields)


class Station:
    """A recorder that runs in this process, and its clients."""

    def __init__(self, path: Path, **daemon: Any) -> None:
        self.home = Home(path)
        self.config = Configuration(**daemon)
        self.heard: list[RecorderEvent] = []
        self.told = threading.Event()
        self._clients: list[Client] = []
        self.recorder = Recorder(self.home, self.config, self._tell)

    def _tell(self, event: RecorderEvent) -> None:
        self.heard.append(event)
        self.told.set()

    def start(self) -> "Station":
        self.recorder.start()
        return self

    def restart(self) -> None:
        self.stop()
        self.recorder = Recorder(self.home, self.config, self._tell)
        self.recorder.start()

    def hears(self, event: RecorderEvent, seconds: float = 60) -> bool:
        """Wait until the recorder has told `event`."""
        return until(lambda: event in self.heard, seconds)

    def person(self) -> Person:
        made = Person(self.home)
        self._clients.append(made)
        return made

    def worker(self, rollout: str) -> Worker:
        """Assign the rollout and say hello as its worker."""
        made = Worker(self.home, rollout, self.recorder.assign(rollout).lease)
        self._clients.append(made)
        made.welcome = made.hello()  # type: ignore[attr-defined]
        return made

    def working(self) -> Worker:
        """A new rollout with its worker."""
        return self.worker(self.person().start()[0])

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        import sqlite3

        connection = sqlite3.connect(f"file:{self.home.database}?mode=ro", uri=True)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def stop(self) -> None:
        self.recorder.stop()
        for client in self._clients:
            client.close()
        self._clients.clear()


def until(what: Callable[[], Any], seconds: float = 60) -> bool:
    """Wait until `what()` is true; whether it became so. The limit only bounds a hanging test."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return False


def spec(engine: str = "script:x") -> records.RolloutSpec:
    task = records.TaskRecord(
        name="probe", folder="/nowhere", definition=TASK, instructions="Look around."
    )
    return records.RolloutSpec(rollout="", task=task, engine=engine, engine_settings={})


def call(step: int, index: int = 0) -> records.ToolCall:
    return records.ToolCall(id=f"{step}.{index}", name="run_command", arguments={"command": "ls"})


def sample(step: int, **fields: Any) -> records.SampleBody:
    given: dict[str, Any] = {
        "role": "policy",
        "parent_seq": None,
        "kept": 0,
        "new_prompt_ids": (1, 2, 3),
        "token_ids": (4, 5),
        "logprobs": (-0.5, -0.25),
        "logprob_kind": "policy",
        "finish_reason": "stop",
        "policy": "policy@1",
        "engine": "embedded",
        "parameters": {"temperature": 0.7},
        "drift": "clean",
        "thought": f"I think about step {step}.",
        "calls": (call(step),),
    }
    return records.SampleBody(**{**given, **fields})


def result(step: int, index: int = 0, **fields: Any) -> records.ToolResult:
    given: dict[str, Any] = {"kind": "command", "success": True, "text": f"output of {step}"}
    return records.ToolResult(call=call(step, index), **{**given, **fields})
