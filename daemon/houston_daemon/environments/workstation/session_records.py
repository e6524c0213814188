"""What the workstation knows of its sessions in addition to the host's terminals.

Which output is hidden (cleared), which jobs run (`session_jobs`), how long a session's log was at
which time (checked every second while something runs, so that output can be shown by time), and the
spans of a step.
"""

import asyncio
import contextlib
import logging
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from houston_daemon.environments.workstation.session_jobs import ReadLastLine, SessionJobs
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.hosts.host_protocol import RolloutHost, TerminalStatus
from houston_shared.errors import HoustonError
from houston_shared.records import TerminalSpan

log = logging.getLogger(__name__)
_EVERY = 1.0
_MAX_MARKS = 20_000


_LISTED = 80


def shortened(command: str) -> str:
    """The first line of a command, cut at 80 characters."""
    first = command.strip().split("\n", 1)[0]
    return first if first == command.strip() and len(first) <= _LISTED else first[:_LISTED] + "…"


class OutputStart(NamedTuple):
    """Where the output after some time begins."""

    offset: int
    known_from: float
    """Unix time from which it is known; later than what was asked for when marks do not reach."""


class SessionRecords:
    """Times, hidden output and spans of one rollout's sessions."""

    def __init__(
        self,
        host: RolloutHost,
        state: Callable[[], WorkstationState],
        jobs: SessionJobs,
    ) -> None:
        self.jobs = jobs
        self._host = host
        self._state = state
        self._marks: dict[str, list[tuple[float, int]]] = {}
        self._busy_sessions: set[str] = set()
        self._sampler: asyncio.Task[None] | None = None

    def open(self, last_line: ReadLastLine) -> None:
        """Begin to watch; marks of an earlier worker reach back to the last closed step."""
        state = self._state()
        for name, end in state.ends.items():
            self._marks[name] = [(state.marked_at, end)]
        self.jobs.begin()
        self._sampler = asyncio.create_task(self._watch(last_line), name="session-times")

    async def close(self) -> None:
        """Stop watching."""
        if self._sampler is not None:
            self._sampler.cancel()
            (outcome,) = await asyncio.gather(self._sampler, return_exceptions=True)
            if isinstance(outcome, Exception):
                log.error("sessions are no longer watched", exc_info=outcome)

    def note(self, status: TerminalStatus) -> TerminalStatus:
        """Remember how far a log has grown by now."""
        marks = self._marks.setdefault(status.name, [])
        if not marks or marks[-1][1] != status.log_bytes:
            marks.append((time.time(), status.log_bytes))
            del marks[:-_MAX_MARKS]
        (self._busy_sessions.add if status.busy else self._busy_sessions.discard)(status.name)
        self.jobs.note(status)
        return status

    def begin(self, name: str) -> int:
        """Offset before which output is hidden."""
        return self._state().cleared.get(name, 0)

    def hide(self, status: TerminalStatus) -> None:
        """Hide everything printed so far."""
        self._state().cleared[status.name] = status.log_bytes

    def closed(self, status: TerminalStatus) -> None:
        """A session is closed: keep its log's end for the step, and hide its output from a new
        one."""
        self.hide(status)
        self.jobs.closed(status)
        self._busy_sessions.discard(status.name)
        self._state().finals[status.name] = status.log_bytes

    def since(self, name: str, at: float) -> OutputStart:
        """The offset after which output is newer than Unix time `at` (to about a second)."""
        marks = self._marks.get(name, [])
        index = bisect_right(marks, at, key=lambda mark: mark[0]) - 1
        if index >= 0:
            return OutputStart(max(self.begin(name), marks[index][1]), at)
        first_time, first = marks[0] if marks else (time.time(), 0)
        return OutputStart(max(self.begin(name), first), first_time)

    async def running(self) -> tuple[str, ...] | None:
        """Sessions in which a command runs now; None where the host cannot say."""
        try:
            statuses = [self.note(status) for status in await self._host.terminals()]
        except (HoustonError, OSError):
            return None
        return tuple(status.name for status in statuses if status.busy)

    async def spans(self) -> tuple[tuple[TerminalSpan, ...], dict[str, int]]:
        """What each terminal printed since the last step, and where its log ends now."""
        state = self._state()
        ends = dict(state.ends)
        sizes = {
            status.name: self.note(status).log_bytes for status in await self._host.terminals()
        }
        for name, end in (state.finals | sizes).items():
            ends[name] = end
        spans = tuple(
            TerminalSpan(
                host=self._host.name, terminal=name, start=state.ends.get(name, 0), end=end
            )
            for name, end in sorted(ends.items())
            if end > state.ends.get(name, 0)
        )
        return spans, ends

    async def _watch(self, last_line: ReadLastLine) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.jobs.has_news.wait(), _EVERY)
            await self.jobs.report_news(last_line)
            if not (self._busy_sessions or self.jobs.open_jobs):
                continue
            try:
                for status in await self._host.terminals():
                    self.note(status)
            except (HoustonError, OSError):
                continue  # only times become coarser; an action on the session will say what is up
