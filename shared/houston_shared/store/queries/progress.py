"""How far the journal is: its newest sequence, what came since, counts, forks and samples."""

from houston_shared.records import ForkBody
from houston_shared.store import journal
from houston_shared.store.journal import Header
from houston_shared.store.plan import END, Ask, Plan, RowRecord, columns, from_rows


class Fork(RowRecord, frozen=True):
    """A row of `forks`: a context that began by summarising."""

    number: int
    step: int
    """The step that the new context comes before."""
    k: int
    first_kept_step: int
    mechanical: int
    sample_seq: int | None
    seq: int


class Sample(RowRecord, frozen=True):
    """A row of `samples`: the ledger's counts, without ids."""

    seq: int
    rollout: str
    step: int
    attempt: int
    role: str
    parent_seq: int | None
    kept: int
    new_ids: int | None
    sampled_ids: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    finish_reason: str
    logprob_kind: str
    engine: str
    policy: str
    drift: str
    guided: int
    seconds: float


def last_seq(rollout: str = "") -> Plan[int]:
    """Newest sequence of the journal, or of one rollout; 0 when there is none."""
    condition, parameters = _named(rollout, ())
    rows = yield Ask(f"SELECT max(seq) FROM events WHERE seq > 0 {condition}", parameters)
    return rows[0][0] or 0


def since(
    seq: int, rollout: str = "", limit: int = 1000, kinds: tuple[str, ...] = ()
) -> Plan[list[Header]]:
    """Events after `seq`, oldest first: what a reader missed while it was away."""
    condition, parameters = _named(rollout, kinds)
    rows = yield Ask(
        f"SELECT {columns(Header)} FROM events WHERE seq > ? {condition} ORDER BY seq LIMIT ?",
        (seq, *parameters, limit),
    )
    return from_rows(Header, rows)


def newest(limit: int, rollout: str = "", kinds: tuple[str, ...] = ()) -> Plan[list[Header]]:
    """The last `limit` events, oldest first."""
    condition, parameters = _named(rollout, kinds)
    rows = yield Ask(
        f"SELECT {columns(Header)} FROM events WHERE seq > 0 {condition} ORDER BY seq DESC LIMIT ?",
        (*parameters, limit),
    )
    return from_rows(Header, rows[::-1])


def states() -> Plan[dict[str, int]]:
    """Rollouts by state."""
    rows = yield Ask("SELECT state, count(*) FROM rollouts GROUP BY state")
    return dict(rows)


def drifts(rollout: str) -> Plan[dict[str, int]]:
    """Steps of a rollout by class: clean, stripped, realigned, forked."""
    rows = yield Ask(
        "SELECT drift, count(*) FROM steps WHERE rollout = ? AND current = 1 GROUP BY drift",
        (rollout,),
    )
    return dict(rows)


def forks(rollout: str) -> Plan[list[Fork]]:
    """Forks of a rollout, in order."""
    rows = yield Ask(
        f"SELECT {columns(Fork)} FROM forks WHERE rollout = ? ORDER BY number", (rollout,)
    )
    return from_rows(Fork, rows)


def fork_body(fork: Fork) -> Plan[ForkBody]:
    """What a fork put into the context."""
    event = (yield from journal.by_seq([fork.seq]))[fork.seq]
    erased = ForkBody(k=fork.k, first_kept_step=fork.first_kept_step, summary=journal.ERASED)
    return (yield from journal.record(event, ForkBody, erased))


def samples(rollout: str, first: int = 1, last: int = END) -> Plan[list[Sample]]:
    """The ledger's entries for a range of steps, summaries included, in order."""
    rows = yield Ask(
        f"SELECT {columns(Sample)} FROM samples WHERE rollout = ?1 AND step >= ?2"
        " AND step <= ?3 ORDER BY seq",
        (rollout, first, last),
    )
    return from_rows(Sample, rows)


def sample(seq: int | None) -> Plan[Sample | None]:
    """The ledger's entry with this sequence; None when there is none."""
    rows = yield Ask(f"SELECT {columns(Sample)} FROM samples WHERE seq = ?", (seq,))
    return Sample(*rows[0]) if rows else None


def _named(rollout: str, kinds: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """SQL that narrows to a rollout and to kinds, and its parameters."""
    condition = "AND rollout = ?" if rollout else ""
    parameters = (rollout,) if rollout else ()
    if kinds:
        condition += f" AND kind IN ({','.join('?' * len(kinds))})"
    return condition, (*parameters, *kinds)
