"""A home read for the checker: a worker's messages, guidance, and the context of each step."""

import sqlite3
from contextlib import closing

import msgspec

from houston_shared import records
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import step_context, store_reader
from houston_shared.store.store_reader import Reader
from tests.faults.history import Event, Key, Stored, Told
from tests.faults.witness import words

RECORDS: dict[str, type] = {
    "head": records.ContextHead,
    "sample": records.SampleBody,
    "intent": records.CallIntent,
    "result": records.ToolResult,
    "observation": records.ObservationBody,
    "fork": records.ForkBody,
}


def stored(home: Home, contexts: bool = True) -> Stored:
    """Everything of a home; contexts: also render the context of every sample."""
    with closing(sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)) as database:
        rows = database.execute(
            "SELECT seq, rollout, step, attempt, part, kind, body, blob FROM events"
            " WHERE part IS NOT NULL ORDER BY seq"
        )
        events = [_event(home, *row) for row in rows]
        guidance = [
            Told(number, id, rollout, msgspec.msgpack.decode(body)["text"], step)
            for number, id, rollout, body, step in database.execute(
                "SELECT g.number, g.id, g.rollout, e.body, g.delivered_step FROM guidance g"
                " JOIN events e ON e.seq = g.text_seq ORDER BY g.number"
            )
        ]
        closed = database.execute(
            "SELECT rollout, max(step) FROM steps JOIN rollouts ON rollouts.id = rollout"
            " WHERE state IN ('cancelled', 'failed') GROUP BY rollout"
        ).fetchall()
    found = Stored(events, guidance, closed=dict(closed))
    if contexts:
        samples = [event.key for event in events if event.key.part == "sample"]
        found.contexts = _contexts(home, samples)
    return found


def _event(
    home: Home,
    seq: int,
    rollout: str,
    step: int,
    attempt: int,
    part: str,
    kind: str,
    body: bytes | None,
    blob: str | None,
) -> Event:
    data = store_reader.read_blob(home, blob) if blob else body or b""
    record = msgspec.msgpack.decode(data, type=RECORDS[kind])
    return Event(seq, Key(rollout, step, attempt, part), words(record))


def _contexts(home: Home, samples: list[Key]) -> dict[tuple[str, int], str]:
    """Of every eighth step and of each rollout's last: rendering all of them takes minutes."""
    last = {key.rollout: key.step for key in samples}
    found = {}
    with Reader(home) as reader:
        for key in samples:
            if key.step % 8 == 0 or key.step == last[key.rollout]:
                try:
                    request = reader.run(step_context.read_request(key.rollout, key.step))
                except HoustonError as problem:
                    raise AssertionError(f"{key}: {problem}") from problem
                found[key.rollout, key.step] = words([request.messages, request.token_ids])
    return found
