"""What each kind of event changes in the derived tables.

There is one function for each kind of event, named `project_*`, and `PROJECTIONS` maps kinds to
functions: start here to add a kind of event or a column of `steps`. Those for guidance are in
`guidance_projections`, those for policies and training runs in `training_projections`. They are
pure functions of the events: none reads the journal or a clock, because `verify` replays them on
empty tables and compares. Presence and a rollout's activity are not derived from events. The schema
is `houston_shared.store.schema`.
"""

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

import msgspec

from houston_daemon.recorder.guidance_projections import (
    project_delivery,
    project_draft,
    project_draft_decision,
    project_guidance,
    project_guidance_edit,
    project_guidance_order,
    project_guidance_withdrawal,
    project_review_cost,
)
from houston_daemon.recorder.hash_chain import EventHeader
from houston_daemon.recorder.training_projections import (
    insert_row,
    project_activation,
    project_activation_result,
    project_policy,
    project_training_cancel,
    project_training_request,
    project_training_state,
)
from houston_shared.records import (
    ENDED_STATES,
    BranchPoint,
    ContextHead,
    ForkBody,
    JobReport,
    Record,
    TaskRecord,
    ToolResult,
)
from houston_shared.store.event_bodies import (
    CancelRequested,
    DaemonStarted,
    NoteRead,
    ProcessRewardGiven,
    RolloutAssigned,
    RolloutClaimed,
    StepBookmarked,
    StoredObservation,
    StoredSample,
    StoredSpec,
    StoredState,
    VerdictGiven,
)
from houston_shared.store.search_matching import SEARCH_RESULT_KINDS


def project_verdict(connection: Connection, event: EventHeader, body: VerdictGiven) -> None:
    """Set or remove verdicts on the current attempts; a step that is missing gets none."""
    span = (event.rollout, event.step, body.last)
    if body.verdict == "undecided":
        connection.execute(
            "DELETE FROM verdicts WHERE rollout = ? AND step BETWEEN ? AND ? AND source = ?"
            " AND attempt IN (SELECT attempt FROM steps s WHERE s.rollout = verdicts.rollout"
            " AND s.step = verdicts.step AND s.current)",
            (*span, body.source),
        )
        return
    connection.execute(
        "INSERT OR REPLACE INTO verdicts (rollout, step, attempt, source, keep, author, seq, at)"
        " SELECT rollout, step, attempt, ?4, ?5, ?6, ?7, ?8 FROM steps WHERE rollout = ?1"
        " AND step BETWEEN ?2 AND ?3 AND current AND observation_seq IS NOT NULL",
        (*span, body.source, int(body.verdict == "keep"), body.by, event.seq, event.at),
    )


def project_process_reward(
    connection: Connection, event: EventHeader, body: ProcessRewardGiven
) -> None:
    """Store a score of one attempt; a later score of the same policy replaces it."""
    connection.execute(
        "INSERT OR REPLACE INTO process_rewards (rollout, step, attempt, policy, score, weak, seq,"
        " at) SELECT rollout, step, attempt, ?4, ?5, ?6, ?7, ?8 FROM steps WHERE rollout = ?1"
        " AND step = ?2 AND attempt = ?3",  # a repair may have left the score without its step
        (
            event.rollout,
            event.step,
            event.attempt,
            body.policy,
            body.score,
            int(body.weak),
            event.seq,
            event.at,
        ),
    )


def project_claim(connection: Connection, event: EventHeader, body: RolloutClaimed) -> None:
    """Who holds it, since when, and where the newest note is."""
    holder = "" if body.release else body.by
    connection.execute(
        "INSERT INTO claims (rollout, holder, uid, verified, since, seq, note_seq, note_to)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET"
        " since = CASE WHEN holder = ?2 AND uid IS ?3 OR holder = '' AND ?2 = '' THEN since"
        " ELSE ?5 END, holder = ?2, uid = ?3, verified = ?4, seq = ?6,"
        " note_seq = coalesce(?7, note_seq), note_to = iif(?7, ?8, note_to),"
        " read_by = iif(?7, '', read_by), read_at = iif(?7, NULL, read_at)",
        (
            event.rollout,
            holder,
            body.uid,
            int(body.verified),
            event.at,
            event.seq,
            event.seq if body.note else None,
            body.to,
        ),
    )


def project_note_read(connection: Connection, event: EventHeader, body: NoteRead) -> None:
    """The first who reads the newest note."""
    connection.execute(
        "UPDATE claims SET read_by = ?, read_at = ? WHERE rollout = ? AND note_seq = ?"
        " AND read_by = ''",
        (body.by, event.at, event.rollout, body.note),
    )


def project_bookmark(connection: Connection, event: EventHeader, body: StepBookmarked) -> None:
    """Add or remove the author's bookmark; a note stays even when its bookmark goes."""
    if body.remove:
        connection.execute(
            "DELETE FROM bookmarks WHERE rollout = ? AND step = ? AND author = ?",
            (event.rollout, event.step, body.author),
        )
        return
    row = (event.rollout, event.step, body.author, event.seq, event.at)
    connection.execute(
        "INSERT INTO bookmarks (rollout, step, author, seq, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET seq = excluded.seq, at = excluded.at",
        row,
    )
    if body.note:
        connection.execute(
            "INSERT INTO notes (rollout, step, author, seq, at) VALUES (?, ?, ?, ?, ?)", row
        )


def project_daemon_start(connection: Connection, event: EventHeader, body: DaemonStarted) -> None:
    """The epoch that counts."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('epoch', ?1)"
        " ON CONFLICT (key) DO UPDATE SET value = ?1",
        (str(body.epoch),),
    )


def project_task(connection: Connection, event: EventHeader, body: TaskRecord) -> None:
    """The newest definition of a task."""
    connection.execute(
        "INSERT INTO tasks (name, seq, first_seen) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET seq = excluded.seq",
        (body.name, event.seq, event.at),
    )


def _role_engines_json(body: StoredSpec) -> str:
    own = {
        role: {"engine": each.engine, "policy": each.policy}
        for role, each in sorted(body.role_engines.items())
    }
    return msgspec.json.encode(own).decode()


def project_spec(connection: Connection, event: EventHeader, body: StoredSpec) -> None:
    """A new queued rollout; a branch starts as its parent was after their last shared step."""
    begins = body.origin or BranchPoint(seq=0, head_seq=0)
    insert_row(
        connection,
        "rollouts",
        id=event.rollout,
        task=body.task.name,
        state="queued",
        engine=body.engine,
        policy=body.policy,
        role_engines=_role_engines_json(body),
        group_id=body.group,
        parent=body.parent,
        parent_step=body.parent_step,
        sandbox=body.sandbox,
        spec_seq=event.seq,
        created_at=event.at,
        updated_at=event.at,
        last_seq=event.seq,
        request=body.request,
        head_seq=begins.head_seq or None,
        fork_seq=begins.fork_seq,
        forks=begins.forks,
        first_step=begins.first_step,
        steps=(body.parent_step or 0) if body.origin else 0,
        active_us=begins.active_us,
        evaluations=begins.evaluations,
        best_score=begins.best_score,
        last_score=begins.last_score,
        errors=begins.errors,
    )

    if body.refines is not None and not body.origin:  # a branch of a refinement is a branch
        insert_row(
            connection,
            "refinements",
            rollout=event.rollout,
            refines=body.refines.rollout,
            critic=body.refines.critic,
            seq=event.seq,
        )


def project_assignment(connection: Connection, event: EventHeader, body: RolloutAssigned) -> None:
    """The lease that counts."""
    connection.execute("UPDATE rollouts SET lease = ? WHERE id = ?", (body.lease, event.rollout))


def project_state(connection: Connection, event: EventHeader, body: StoredState) -> None:
    """The state, why, and who owns a pause."""
    owner = body.by if body.state == "paused" else ""
    connection.execute(
        "UPDATE rollouts SET state = ?1, paused_by = ?2, reason = ?3, activity = '',"
        " cancelling = CASE WHEN ?4 THEN '' ELSE cancelling END WHERE id = ?5",
        (body.state, owner, body.reason, body.state in ENDED_STATES, event.rollout),
    )
    if body.state in ENDED_STATES:
        connection.execute(
            "UPDATE jobs SET ended_at = ?, stopped_by = 'rollout', seq = ?"
            " WHERE rollout = ? AND ended_at IS NULL",
            (event.at, event.seq, event.rollout),
        )


def project_job(connection: Connection, event: EventHeader, body: JobReport) -> None:
    """How a job stands now."""
    connection.execute(
        "INSERT OR REPLACE INTO jobs (rollout, host, id, step, session, command, started_at,"
        " ended_at, exit_code, failed, stopped_by, ending, log_start, log_end, output, last_line,"
        " seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.rollout,
            body.host,
            body.id,
            body.step,
            body.session,
            body.command,
            body.started_at,
            body.ended_at or None,
            body.exit_code,
            int(body.failed),
            body.stopped_by,
            body.end,
            body.log_start,
            body.log_end,
            body.output,
            body.last_line,
            event.seq,
        ),
    )


def project_cancel(connection: Connection, event: EventHeader, body: CancelRequested) -> None:
    """Who wants it ended."""
    connection.execute(
        "UPDATE rollouts SET cancelling = ?, reason = ? WHERE id = ?",
        (body.by, body.reason, event.rollout),
    )


def project_nothing(connection: Connection, event: EventHeader, body: Record) -> None:
    """Change nothing but the rollout's newest time (`project_event`): only the journal keeps it."""


def project_head(connection: Connection, event: EventHeader, body: ContextHead) -> None:
    """Where the head of the contexts is."""
    connection.execute("UPDATE rollouts SET head_seq = ? WHERE id = ?", (event.seq, event.rollout))


SEARCH_QUERY_LIMIT = 200
"""Characters of a search query that its row keeps."""


def project_sample(connection: Connection, event: EventHeader, body: StoredSample) -> None:
    """One request to a model; the policy's own opens its step."""
    insert_row(
        connection,
        "samples",
        seq=event.seq,
        rollout=event.rollout,
        step=event.step,
        attempt=event.attempt,
        role=body.role,
        parent_seq=body.parent_seq,
        kept=body.kept,
        new_ids=_count_or_none(body.new_prompt_ids),
        sampled_ids=_count_or_none(body.token_ids),
        prompt_tokens=body.prompt_tokens,
        cached_tokens=body.cached_tokens,
        finish_reason=body.finish_reason,
        logprob_kind=body.logprob_kind,
        engine=body.engine,
        policy=body.policy,
        drift=body.drift,
        guided=int(bool(body.parameters.get("grammar"))),
        seconds=body.seconds,
        completion_tokens=body.completion_tokens,
        reasoning_tokens=body.reasoning_tokens,
        cost=body.cost,
    )
    if event.part == "sample" or body.role == "lookahead":
        _insert_step(connection, event, body)


def _count_or_none(ids: tuple[int, ...] | None) -> int | None:
    return None if ids is None else len(ids)


def _insert_step(connection: Connection, event: EventHeader, body: StoredSample) -> None:
    """An attempt at a step. A look-ahead does not count: another attempt takes over what it did."""
    counts = body.role != "lookahead"
    if event.attempt > 1 and counts:
        _supersede_attempts(connection, event)
    insert_row(
        connection,
        "steps",
        rollout=event.rollout,
        step=event.step,
        attempt=event.attempt,
        current=int(counts),
        sample_seq=event.seq,
        last_seq=event.seq,
        policy=body.policy,
        drift=body.drift,
        tools=",".join(call.name for call in body.calls),
        calls=len(body.calls),
        started_at=event.at,
        active_us=body.active_us,
    )


def _supersede_attempts(connection: Connection, event: EventHeader) -> None:
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


def project_result(connection: Connection, event: EventHeader, body: ToolResult) -> None:
    """Store what a call returned; evaluations and searches get rows, those of look-aheads only once
    an attempt that counts has taken them over."""
    if not body.success:
        connection.execute(
            "UPDATE steps SET errors = errors + 1 WHERE rollout = ? AND step = ? AND attempt = ?",
            (event.rollout, event.step, event.attempt),
        )
    if body.kind == "eval":
        if not _is_lookahead(connection, event):
            _insert_evaluation(connection, event, body)
    elif body.kind in SEARCH_RESULT_KINDS:
        _insert_search(connection, event, body)


def _is_lookahead(connection: Connection, event: EventHeader) -> bool:
    row = connection.execute(
        "SELECT current FROM steps WHERE rollout = ? AND step = ? AND attempt = ?",
        (event.rollout, event.step, event.attempt),
    ).fetchone()
    return row is not None and not row[0]  # a repair may have left a result without its sample


def _insert_evaluation(connection: Connection, event: EventHeader, body: ToolResult) -> None:
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


def _insert_search(connection: Connection, event: EventHeader, body: ToolResult) -> None:
    insert_row(
        connection,
        "searches",
        rollout=event.rollout,
        step=event.step,
        attempt=event.attempt,
        idx=int((event.part or ".0").partition(".")[2]),
        kind=body.call.name,
        query=str(body.fields.get("query", ""))[:SEARCH_QUERY_LIMIT],
        results=body.fields.get("total_results", 0),
        seq=event.seq,
    )


def project_observation(
    connection: Connection, event: EventHeader, body: StoredObservation
) -> None:
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
        _insert_file_changes(connection, event, body)
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


def _insert_file_changes(
    connection: Connection, event: EventHeader, body: StoredObservation
) -> None:
    key = (event.rollout, event.step, event.attempt)
    connection.executemany(
        "INSERT INTO file_changes (rollout, step, attempt, path, kind, added, removed, seq)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*key, change.path, change.kind, change.added, change.removed, event.seq)
            for change in body.files
        ],
    )


def project_fork(connection: Connection, event: EventHeader, body: ForkBody) -> None:
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


Projection = Callable[[Connection, Any, Any], None]

PROJECTIONS: dict[str, Projection] = {
    "daemon": project_daemon_start,
    "task": project_task,
    "spec": project_spec,
    "assigned": project_assignment,
    "state": project_state,
    "cancel": project_cancel,
    "clock": project_nothing,
    "head": project_head,
    "sample": project_sample,
    "intent": project_nothing,  # its row of `steps` stays, which saves a page of the WAL
    "result": project_result,
    "observation": project_observation,
    "delivery": project_delivery,
    "fork": project_fork,
    "guidance": project_guidance,
    "edit": project_guidance_edit,
    "withdraw": project_guidance_withdrawal,
    "bookmark": project_bookmark,
    "reorder": project_guidance_order,
    "verdict": project_verdict,
    "process-reward": project_process_reward,
    "draft": project_draft,
    "draft-decision": project_draft_decision,
    "review-cost": project_review_cost,
    "claim": project_claim,
    "job": project_job,
    "note-read": project_note_read,
    "stop": project_nothing,
    "jumped": project_nothing,
    "refused": project_nothing,
    "hosts": project_nothing,
    "erased": project_nothing,  # rows that change are derived again from the remainders
    "repaired": project_nothing,
    "cleaned": project_nothing,
    "policy": project_policy,
    "training": project_training_request,
    "training-moved": project_training_state,
    "training-cancel": project_training_cancel,
    "activation": project_activation,
    "activated": project_activation_result,
}

PROJECTED_TABLES: dict[str, str] = {
    "meta": "key",
    "tasks": "name",
    "rollouts": "id",
    "refinements": "rollout",
    "critic_drafts": "id",
    "review_costs": "seq",
    "steps": "rollout, step, attempt",
    "samples": "seq",
    "forks": "rollout, number",
    "guidance": "id",
    "verdicts": "rollout, step, attempt, source",
    "process_rewards": "rollout, step, attempt, policy",
    "evaluations": "rollout, number",
    "jobs": "rollout, host, id",
    "terminals": "rollout, host, name",
    "terminal_spans": "rollout, step, attempt, host, terminal",
    "file_changes": "rollout, step, attempt, path",
    "searches": "rollout, step, attempt, idx",
    "policies": "name",
    "training_runs": "id",
    "activations": "seq",
    "bookmarks": "rollout, step, author",
    "claims": "rollout",
    "notes": "seq",
}
"""Every derived table and its key."""

UNPROJECTED_COLUMNS: dict[str, frozenset[str]] = {"rollouts": frozenset({"activity"})}
"""Columns of derived tables that no event decides."""


def project_event(connection: Connection, event: EventHeader, body: Record) -> None:
    """Write the derived rows of one event. Active time only grows.

    Raises KeyError for a kind without a rule and sqlite3.Error for what the tables refuse.
    """
    PROJECTIONS[event.kind](connection, event, body)
    if event.rollout and event.kind != "observation":  # its rule does this with the rest
        connection.execute(
            "UPDATE rollouts SET updated_at = ?, last_seq = ?, active_us = max(active_us, ?)"
            " WHERE id = ?",
            (event.at, event.seq, getattr(body, "active_us", 0), event.rollout),
        )
