"""The process of many short rollouts: takes one after another, several at once.

`python -m houston_daemon.agent.shared_worker --endpoint ipc://…|FILE --line FD [--engine-url U]`.
Started by the supervisor for rollouts whose environment needs no host. Each rollout has its own
lease, control state and log, as in a separate worker; they share only the process, one socket to
the recorder with one message for all heartbeats, and their engines. An exception ends only its own
rollout: the supervisor is told, and starts that rollout again in a worker of its own.
`rollout_worker` runs one rollout.
"""

import argparse
import asyncio
import contextlib
import contextvars
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from houston_daemon.agent.engine_cache import EngineCache
from houston_daemon.agent.recorder_client import IngestConnection, IngestSocket
from houston_daemon.agent.rollout_worker import (
    ENDPOINT_HELP,
    EngineOverrides,
    add_engine_arguments,
    read_engine_arguments,
    run_rollout,
)
from houston_daemon.agent.shared_worker_line import RolloutExited, RunRollout, WorkerLine
from houston_daemon.agent.worker_control import ControlState
from houston_shared.errors import HoustonError
from houston_shared.recorder_endpoint import RecorderEndpoint, parse_endpoint
from houston_shared.redacted_logging import RedactingFormatter
from houston_shared.secret_redaction import redact

log = logging.getLogger(__name__)
_current_log: contextvars.ContextVar[Path | None] = contextvars.ContextVar("log", default=None)
"""Where the rollout of the running task logs; None outside of any."""


class RolloutLogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes each rollout's lines into its own file, and all other lines to stderr.

    The file is opened and closed for each line: short rollouts rarely log anything, and after a
    file was moved away a new one is started.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        path = _current_log.get()
        if path is None:
            super().emit(record)
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 as every handler: logging says so, and goes on
            self.handleError(record)


class SharedWorker:
    """The rollouts of this process; used from its event loop only."""

    def __init__(
        self, endpoint: RecorderEndpoint, line: socket.socket, now: EngineOverrides
    ) -> None:
        self._connection = IngestConnection(endpoint)
        self._line = WorkerLine(line, self._take)
        self._now = now
        self._engines = EngineCache()
        self._controls: dict[str, ControlState] = {}
        """Of each rollout that runs."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()

    async def run(self) -> None:
        """Run until no more rollouts come, or this process is told to leave, and none is left."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._drain)
        endings = [asyncio.create_task(end.wait()) for end in (self._line.closed, self._draining)]
        await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        while self._tasks:
            await asyncio.wait(self._tasks)
        for ending in endings:
            ending.cancel()
        await self._engines.close()
        await self._connection.close()

    def _drain(self) -> None:
        """Every rollout is left at its next safe point, and no other is begun."""
        self._draining.set()
        for control in self._controls.values():
            control.drain()

    def _take(self, order: RunRollout) -> None:
        if self._draining.is_set():
            self._line.report(RolloutExited(order.rollout, order.lease))
            return
        context = contextvars.copy_context()
        context.run(_current_log.set, Path(order.log))
        task = asyncio.get_running_loop().create_task(self._run(order), context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, order: RunRollout) -> None:
        """Run one rollout; whatever comes of it, the others go on."""
        code, problem = 0, ""
        control = self._controls[order.rollout] = ControlState()
        client = IngestSocket(self._connection, control, order.rollout)
        try:
            await run_rollout(
                client,
                control,
                order.rollout,
                order.lease,
                self._now,
                engines=self._engines,
            )
        except HoustonError as refused:
            log.error("%s", refused)
            code, problem = int(refused.code), str(refused)
        except (Exception, SystemExit) as raised:
            log.exception("the rollout is left")
            code, problem = 1, f"{type(raised).__name__}: {raised}"
        finally:
            del self._controls[order.rollout]
            await client.close()
            words = redact(" ".join(problem.split()))[:1_000]
            self._line.report(RolloutExited(order.rollout, order.lease, code, words))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one shared worker; its exit code."""
    parser = argparse.ArgumentParser("houston worker", description="many short rollouts")
    parser.add_argument("--endpoint", required=True, help=ENDPOINT_HELP)
    parser.add_argument("--name", required=True, help="shown to whoever lists processes")
    parser.add_argument("--line", type=int, required=True, metavar="FD", help="to the supervisor")
    add_engine_arguments(parser)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    handler = RolloutLogHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    endpoint = parse_endpoint(options.endpoint)

    async def serve(line: socket.socket) -> None:
        await SharedWorker(endpoint, line, read_engine_arguments(options)).run()

    with contextlib.closing(socket.socket(fileno=options.line)) as line:
        asyncio.run(serve(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
