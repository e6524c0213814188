"""Order and sanity of a worker's messages: what may follow what. Changes nothing."""

import math
import re

from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.steps import guidance
from houston_daemon.recorder.steps.recent import NUMBER_LIMIT
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.records import Result
from houston_shared.wire import (
    IngestRequest,
    StoreFork,
    StoreHead,
    StoreIntent,
    StoreObservation,
    StoreResult,
    StoreSample,
)

_PARTS = re.compile(
    r"(summary|judge|planner|executor|verifier|critic|lookahead)\.[1-9][0-9]{0,5}", re.ASCII
)
_EVAL_STATES = ("scored", "format", "failed")


def check(store: Store, row: Rollout, message: IngestRequest) -> None:
    """Refuse what cannot follow what is stored."""
    for name in ("step", "attempt"):
        if not 1 <= getattr(message, name, 1) < NUMBER_LIMIT:
            raise _invalid(f"{name} is {getattr(message, name)}; it begins with 1")
    match message:
        case StoreHead():
            if row.head_seq is not None:
                raise _invalid("the head is stored already")
        case StoreSample():
            _sample(store, row, message)
        case StoreIntent():
            _index(message.index)
            _open(store, row, message.step, message.attempt)
        case StoreResult():
            _result(store, row, message)
        case StoreObservation():
            _observation(store, row, message)
        case StoreFork():
            _fork(store, row, message)


def _sample(store: Store, row: Rollout, message: StoreSample) -> None:
    if message.part != "sample":
        _aside(row, message)
        return
    newest = store.connection.execute(
        "SELECT attempt, observation_seq, guided FROM steps WHERE rollout = ? AND step = ?"
        " ORDER BY attempt DESC LIMIT 1",
        (row.id, message.step),
    ).fetchone()
    if newest is None:
        if message.attempt != 1 or message.step != row.steps + 1:
            raise _invalid(
                f"a sample for step {message.step}, attempt {message.attempt};"
                f" step {row.steps + 1}, attempt 1 comes next"
            )
        return
    attempt, observation, guided = newest
    if message.attempt != attempt + 1:
        raise _invalid(f"attempt {message.attempt} of step {message.step} after {attempt}")
    if observation is not None:
        _replaceable(store, row, message.step, bool(guided))


def _aside(row: Rollout, message: StoreSample) -> None:
    """A sample that opens no step: a summary, a judge's, …"""
    if not _PARTS.fullmatch(message.part):
        raise _invalid(f"there is no part {message.part[:40]!r}")
    if message.part.partition(".")[0] != message.sample.role:
        raise _invalid(f"part {message.part!r} holds a sample of role {message.sample.role!r}")
    if message.step > row.steps + 1:
        raise _invalid(f"step {message.step} is not reached; {row.steps + 1} comes next")


def _replaceable(store: Store, row: Rollout, step: int, guided: bool) -> None:
    """A closed step is taken again only while it is the last and carries no guidance."""
    if guided:
        raise _invalid(f"step {step} carries guidance and is not taken again")
    if step != row.steps or _attempt(store, row, step + 1) is not None:
        raise _invalid(f"step {step} is closed")
    branch = store.connection.execute(
        "SELECT id FROM rollouts WHERE parent = ? AND parent_step = ?", (row.id, step)
    ).fetchone()
    if branch:
        raise _invalid(f"step {step} is shared with the branch {branch[0]} and not taken again")


def _attempt(store: Store, row: Rollout, step: int) -> int | None:
    """The current attempt of a step; None when nothing was sampled for it."""
    found: tuple[int] | None = store.connection.execute(
        "SELECT attempt FROM steps WHERE rollout = ? AND step = ? AND current", (row.id, step)
    ).fetchone()
    return found[0] if found else None


def _open(store: Store, row: Rollout, step: int, attempt: int) -> None:
    """The step must have a sample and no observation, and the attempt must be the current one."""
    found = store.connection.execute(
        "SELECT current, observation_seq FROM steps WHERE rollout = ? AND step = ? AND attempt = ?",
        (row.id, step, attempt),
    ).fetchone()
    if found is None:
        raise _invalid(f"step {step}, attempt {attempt} has no sample")
    if found[1] is not None:
        raise _invalid(f"step {step}, attempt {attempt} is closed")
    if not found[0]:
        raise _invalid(f"attempt {attempt} of step {step} was replaced by a later one")


def _result(store: Store, row: Rollout, message: StoreResult) -> None:
    _index(message.index)
    _open(store, row, message.step, message.attempt)
    known = store.connection.execute(
        "SELECT 1 FROM events WHERE rollout = ? AND step = ? AND attempt = ? AND part = ?",
        (row.id, message.step, message.attempt, f"intent.{message.index}"),
    ).fetchone()
    if known is None:
        raise _invalid(f"call {message.index} of step {message.step} has no intent")
    measured(message.result)


def measured(result: Result) -> None:
    """Refuse figures of a result that no table can hold."""
    if result.kind == "eval":
        _evaluation(result)
    total = result.fields.get("total_results", 0)
    if not isinstance(total, int):
        raise _invalid("total_results is no whole number")


def _evaluation(result: Result) -> None:
    score = result.fields.get("overall_score")
    for name, value in (("overall_score", score), ("seconds", result.fields.get("seconds"))):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value)):
            raise _invalid(f"{name} of an evaluation is {value!r}, no number")
    if result.fields.get("state", "failed") not in _EVAL_STATES:
        raise _invalid(f"the state of an evaluation is none of {', '.join(_EVAL_STATES)}")


def _observation(store: Store, row: Rollout, message: StoreObservation) -> None:
    _open(store, row, message.step, message.attempt)
    intents, results = store.connection.execute(
        "SELECT total(part GLOB 'intent.*'), total(part GLOB 'call.*') FROM events"
        " WHERE rollout = ? AND step = ? AND attempt = ? AND part IS NOT NULL",
        (row.id, message.step, message.attempt),
    ).fetchone()
    if intents != results:
        raise _invalid(f"step {message.step} has {intents:g} intents and {results:g} results")


def _fork(store: Store, row: Rollout, message: StoreFork) -> None:
    fork = message.fork
    if message.step != row.steps + 1 or _attempt(store, row, message.step) is not None:
        raise _invalid(f"a fork before step {message.step}; step {row.steps + 1} comes next")
    if fork.k < 1 or not row.first_step <= fork.first_kept_step <= message.step:
        raise _invalid(f"a fork with k {fork.k} that keeps steps from {fork.first_kept_step} on")
    if len(guidance.by_ids(store, row.id, fork.guidance)) != len(fork.guidance):
        raise _invalid("a fork names guidance that was not delivered to this rollout")


def _index(index: int) -> None:
    if not 0 <= index < NUMBER_LIMIT:
        raise _invalid(f"index is {index}; it begins with 0")


def _invalid(what: str) -> Refusal:
    return Refusal("INVALID", f"This cannot be stored: {what}.")
