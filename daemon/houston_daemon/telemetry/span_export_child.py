"""The process that sends spans: follows the journal and sends to a collector, over OTLP/HTTP.

`python -m houston_daemon.telemetry.span_export_child PARENT HOME CONFIG`, started and watched by
the supervisor if `[telemetry] otlp` names a collector. A step is sent once it is closed, a rollout
once it has ended. Progress is noted in the home after the collector has accepted the spans; refused
spans are sent again with the same ids, so nothing is lost and nothing is counted twice. The agents'
loop knows nothing of it. On its stdout it reports problems.
"""

import logging
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from houston_daemon.service.watched_child import begin_watched_child, report_failures
from houston_daemon.telemetry.rollout_spans import (
    RolloutSpan,
    StepKey,
    read_rollout_span,
    read_step_spans,
)
from houston_shared import atomic_file
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import HoustonError, unwritable_as_error
from houston_shared.home import Home
from houston_shared.records import ENDED_STATES
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.event_bodies import StoredState
from houston_shared.store.journal_events import JournalEvent, ReadPlan
from houston_shared.store.store_reader import Reader

POLL_SECONDS = 1.0
"""How often is looked whether something was committed."""
RETRY_SECONDS = 5.0
EVENTS_PER_READ = 100
"""Closed steps and changes of state that are told in one request."""
MISSING_PACKAGE = (
    "[telemetry] otlp is set, but OpenTelemetry is not installed. next: pip install "
    "'houston-agents[otel]'"
)
_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http"


class SpanPosition(msgspec.Struct, frozen=True):
    """`telemetry.json` of the home: how far a collector knows the journal."""

    seq: int


def position_file(home: Home) -> Path:
    """Where it lies."""
    return home.path / "telemetry.json"


class SpanSender(Protocol):
    """Hands spans on."""

    def send(self, spans: Sequence[RolloutSpan]) -> str:
        """Why they were not taken; empty where they were."""
        ...


class JournalBatch(NamedTuple):
    """What is told next."""

    events: list[JournalEvent]
    """Observations and changes of state, in their order."""
    until: int
    """The sequence up to which nothing else is to be told."""


class SpanFollower:
    """Tells what is committed from where it was left; at first from now on."""

    def __init__(self, loaded: LoadedConfiguration, sender: SpanSender) -> None:
        self._home = loaded.home
        self._reader = Reader(loaded.home)
        self._content = loaded.config.telemetry.content
        self._sender = sender
        self._position: int | None = None
        self.unreadable: dict[str, str] = {}
        """By rollout, why a span of it is left out."""
        self._reported: dict[str, str] = {}

    def run(self) -> None:
        """Follow for ever; what goes wrong is said, and tried again."""
        while True:
            try:
                problem = self.round()
            except HoustonError as error:  # the daemon goes down, or the disk is full
                self._reader.close()
                problem = str(error)
            self._report(problem)
            time.sleep(RETRY_SECONDS if problem else POLL_SECONDS)

    def round(self) -> str:
        """Send all new spans; returns why that failed, empty if it did not."""
        if self._position is None:
            self._position = self._first_position()
        while True:
            batch = self._reader.run(read_batch(self._position))
            if batch.until == self._position:
                return ""
            spans = list(self._spans(batch.events))
            if spans and (problem := self._sender.send(spans)):
                return problem
            self._position = batch.until
            self._write_position()

    def _spans(self, events: Sequence[JournalEvent]) -> Iterator[RolloutSpan]:
        for event in events:
            try:
                yield from self._reader.run(_read_spans(event, self._content))
            except HoustonError as damage:
                self._reader.run(rollout_queries.newest_seq())  # raises where all reading fails
                self.unreadable[event.rollout] = str(damage)

    def _first_position(self) -> int:
        try:
            raw = position_file(self._home).read_bytes()
            return msgspec.json.decode(raw, type=SpanPosition).seq
        except (OSError, msgspec.DecodeError):
            newest = self._reader.run(rollout_queries.newest_seq())
        self._position = newest
        self._write_position()
        return newest

    def _write_position(self) -> None:
        assert self._position is not None
        data = msgspec.json.encode(SpanPosition(self._position))
        with unwritable_as_error(position_file(self._home)):
            atomic_file.write_atomically(position_file(self._home), data, durable=False)

    def _report(self, problem: str) -> None:
        failed = {**self.unreadable, "": problem} if problem else dict(self.unreadable)
        if failed != self._reported:
            self._reported = failed
            report_failures(failed)


def read_batch(after: int) -> ReadPlan[JournalBatch]:
    """The next events that spans are made of, behind a sequence."""
    newest = yield from rollout_queries.newest_seq()
    events = yield from journal_events.select_events(
        "seq > ? AND seq <= ? AND rollout <> '' AND kind IN ('observation', 'state')"
        " ORDER BY seq LIMIT ?",
        (after, newest, EVENTS_PER_READ),
    )
    return JournalBatch(events, events[-1].seq if len(events) == EVENTS_PER_READ else newest)


def _read_spans(event: JournalEvent, content: bool) -> ReadPlan[list[RolloutSpan]]:
    """What is told of an event: a closed step with all in it, or a rollout that has ended."""
    if event.kind == "observation":
        key = StepKey(event.rollout, event.step, event.attempt)
        return (yield from read_step_spans(key, content))
    empty = StoredState(state="queued", by="")
    changed = yield from journal_events.read_event_record(event, StoredState, empty)
    if changed.state not in ENDED_STATES:
        return []
    span = yield from read_rollout_span(event.rollout, content)
    return [span] if span else []


class OtlpSender:
    """Sends to a collector. Raises ImportError where the extra `otel` is not installed."""

    def __init__(self, address: str, version: str, exporter: Any = None) -> None:
        """address: of the collector; without a path, spans go to its `/v1/traces`. exporter: that
        of OpenTelemetry for another place."""
        from houston_daemon.telemetry import span_recording

        self._recording = span_recording.SpanRecording(version)
        self._exporter = exporter or span_recording.otlp_exporter(traces_address(address))
        self._address = address
        self._last_message = _LastMessage()
        logging.getLogger(_EXPORTER_LOGGER).addHandler(self._last_message)
        logging.getLogger(_EXPORTER_LOGGER).propagate = False

    def send(self, spans: Sequence[RolloutSpan]) -> str:
        """Why they were not taken; empty where they were."""
        self._last_message.text = ""
        if self._recording.export(spans, self._exporter):
            return ""
        reason = self._last_message.text or "no reason was given"
        return f"{self._address} does not take spans: {reason}"


class _LastMessage(logging.Handler):
    """Keeps what the exporter says of a failure, which it returns no reason of."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage().partition("\n")[0]


def traces_address(address: str) -> str:
    """Where spans are sent to."""
    parts = urlsplit(address)
    return address if parts.path.strip("/") else f"{address.rstrip('/')}/v1/traces"


def main() -> None:
    """The process: ends with its parent."""
    loaded = begin_watched_child()
    if loaded is None:
        return
    from importlib.metadata import version

    try:
        sender = OtlpSender(loaded.config.telemetry.otlp, version("houston-agents"))
    except ImportError:
        report_failures({"": MISSING_PACKAGE})
        signal.pause()  # until it is installed and the daemon is started again
        return
    SpanFollower(loaded, sender).run()


if __name__ == "__main__":
    main()
