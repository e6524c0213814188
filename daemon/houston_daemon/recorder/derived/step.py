"""Derived rows of steps: samples, calls, observations, forks, and what they did to the world."""

import sqlite3
from typing import TYPE_CHECKING, Any

from houston_daemon.recorder.derived.people import put_in_order
from houston_shared.records import ForkBody, Intent, Result
from houston_shared.store.bodies import Delivery, StoredObservation, StoredSample

if TYPE_CHECKING:
    from houston_daemon.recorder.derived.rules import Event

QUERY_LIMIT = 200
"""Characters of a search query that its row keeps."""
SEARCH_KINDS = frozenset({"search", "web_search", "web_browse"})
"""Kinds of results that are searches."""


def sample(connection: sqlite3.Connection, event: "Event", body: StoredSample) -> None:
    """One request to a model; the policy's own opens its step."""
    connection.execute(
        "INSERT INTO samples (seq, rollout, step, attempt, role, parent_seq, kept, new_ids,"
        " sampled_ids, prompt_tokens, cached_tokens, finish_reason, logprob_kind, engine, policy,"
        " drift, guided, seconds, completion_tokens, reasoning_tokens)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.seq,
            event.rollout,
            event.step,
            event.attempt,
            body.role,
            body.parent_seq,
            body.kept,
            _count(body.new_prompt_ids),
            _count(body.token_ids),
            body.prompt_tokens,
            body.cached_tokens,
            body.finish_reason,
            body.logprob_kind,
            body.engine,
            body.policy,
            body.drift,
            int(bool(body.parameters.get("grammar"))),
            body.seconds,
            body.completion_tokens,
            body.reasoning_tokens,
        ),
    )
    if event.part == "sample":
        _open_step(connection, event, body)


def _count(ids: tuple[int, ...] | None) -> int | None:
    return None if ids is None else len(ids)


def _open_step(connection: sqlite3.Connection, event: "Event", body: StoredSample) -> None:
    if event.attempt > 1:
        _replace_attempts(connection, event)
    connection.execute(
        "INSERT INTO steps (rollout, step, attempt, sample_seq, last_seq, policy, drift, tools,"
        " calls, started_at, active_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.rollout,
            event.step,
            event.attempt,
            event.seq,
            event.seq,
            body.policy,
            body.drift,
            ",".join(call.name for call in body.calls),
            len(body.calls),
            event.at,
            body.active_us,
        ),
    )


def _replace_attempts(connection: sqlite3.Connection, event: "Event") -> None:
    """A later attempt opens the step again: what an earlier one closed no longer counts."""
    where = (event.rollout, event.step)
    closed = connection.execute(
        "SELECT errors > 0 FROM steps WHERE rollout = ? AND step = ? AND current"
        " AND observation_seq IS NOT NULL",
        where,
    ).fetchone()
    if closed:
        connection.execute(
            "UPDATE rollouts SET steps = ?, errors = errors - ? WHERE id = ?",
            (event.step - 1, closed[0], event.rollout),
        )
    connection.execute("UPDATE steps SET current = 0 WHERE rollout = ? AND step = ?", where)


def intent(connection: sqlite3.Connection, event: "Event", body: Intent) -> None:
    """A call is about to run: its row of `steps` stays, which saves a page of the WAL."""


def result(connection: sqlite3.Connection, event: "Event", body: Result) -> None:
    """What a call returned; evaluations and searches have rows of their own."""
    if not body.success:
        connection.execute(
            "UPDATE steps SET errors = errors + 1 WHERE rollout = ? AND step = ? AND attempt = ?",
            (event.rollout, event.step, event.attempt),
        )
    if body.kind == "eval":
        _evaluation(connection, event, body)
    elif body.kind in SEARCH_KINDS:
        _search(connection, event, body)


def _evaluation(connection: sqlite3.Connection, event: "Event", body: Result) -> None:
    fields: dict[str, Any] = body.fields
    score = fields.get("overall_score")
    connection.execute(
        "INSERT INTO evaluations (rollout, number, step, score, state, seconds, seq, at)"
        " SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7"
        " FROM evaluations WHERE rollout = ?1",
        (
            event.rollout,
            event.step,
            score,
            fields.get("state", "failed"),
            fields.get("seconds", body.seconds),
            event.seq,
            event.at,
        ),
    )
    connection.execute(
        "UPDATE rollouts SET evaluations = evaluations + ?2, last_score = coalesce(?3, last_score),"
        " best_score = max(coalesce(?3, best_score), coalesce(best_score, ?3)) WHERE id = ?1",
        (event.rollout, int(bool(fields.get("counted", True))), score),
    )
    connection.execute(
        "UPDATE steps SET score = coalesce(?, score)"
        " WHERE rollout = ? AND step = ? AND attempt = ?",
        (score, event.rollout, event.step, event.attempt),
    )


def _search(connection: sqlite3.Connection, event: "Event", body: Result) -> None:
    connection.execute(
        "INSERT INTO searches (rollout, step, attempt, idx, kind, query, results, seq)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.rollout,
            event.step,
            event.attempt,
            int((event.part or ".0").partition(".")[2]),
            body.call.name,
            str(body.fields.get("query", ""))[:QUERY_LIMIT],
            body.fields.get("total_results", 0),
            event.seq,
        ),
    )


def observation(connection: sqlite3.Connection, event: "Event", body: StoredObservation) -> None:
    """Closes a step."""
    key = (event.rollout, event.step, event.attempt)
    connection.execute(
        "UPDATE steps SET observation_seq = ?1, last_seq = ?1, attention = ?2, snapshot = ?3,"
        " closed_at = ?4, active_us = ?5 WHERE rollout = ?6 AND step = ?7 AND attempt = ?8",
        (event.seq, ",".join(body.attention), body.snapshot, event.at, body.active_us, *key),
    )
    connection.execute(
        "UPDATE rollouts SET steps = ?2, errors = errors +"
        " coalesce((SELECT errors > 0 FROM steps WHERE rollout = ?1 AND step = ?2"
        " AND attempt = ?3), 0),"  # a repair may have left the step without its sample
        " updated_at = ?4, last_seq = ?5, active_us = max(active_us, ?6) WHERE id = ?1",
        (*key, event.at, event.seq, body.active_us),
    )
    if body.files:
        _files(connection, event, body)
    for span in body.spans:
        connection.execute(
            "INSERT INTO terminal_spans (rollout, step, attempt, host, terminal, start, end, seq)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, span.host, span.terminal, span.start, span.end, event.seq),
        )
        connection.execute(
            "INSERT INTO terminals (rollout, host, name, end, last_seq) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET end = excluded.end, last_seq = excluded.last_seq",
            (event.rollout, span.host, span.terminal, span.end, event.seq),
        )


def _files(connection: sqlite3.Connection, event: "Event", body: StoredObservation) -> None:
    key = (event.rollout, event.step, event.attempt)
    connection.executemany(
        "INSERT INTO file_changes (rollout, step, attempt, path, kind, added, removed, seq)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(*key, one.path, one.kind, one.added, one.removed, event.seq) for one in body.files],
    )


def delivery(connection: sqlite3.Connection, event: "Event", body: Delivery) -> None:
    """Guidance was joined to the observation of this step."""
    connection.executemany(
        "UPDATE guidance SET state = 'delivered', delivered_step = ?, delivered_seq = ?,"
        " delivered_at = ? WHERE id = ?",
        [(event.step, event.seq, event.at, one) for one in body.ids],
    )
    put_in_order(connection, body.ids)  # also where a repair has lost who reordered them
    connection.execute(
        "UPDATE steps SET guided = ?, last_seq = ? WHERE rollout = ? AND step = ? AND attempt = ?",
        (len(body.ids), event.seq, event.rollout, event.step, event.attempt),
    )


def fork(connection: sqlite3.Connection, event: "Event", body: ForkBody) -> None:
    """A new context."""
    connection.execute(
        "INSERT INTO forks (rollout, number, step, k, first_kept_step, mechanical, sample_seq, seq)"
        " SELECT ?1, forks + 1, ?2, ?3, ?4, ?5, ?6, ?7 FROM rollouts WHERE id = ?1",
        (
            event.rollout,
            event.step,
            body.k,
            body.first_kept_step,
            int(body.mechanical),
            body.sample_seq,
            event.seq,
        ),
    )
    connection.execute(
        "UPDATE rollouts SET fork_seq = ?, forks = forks + 1, first_step = ? WHERE id = ?",
        (event.seq, body.first_kept_step, event.rollout),
    )
