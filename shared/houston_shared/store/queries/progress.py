"""How far the journal is: its newest sequence, what came since, counts, forks and samples."""

from houston_shared.records import ForkBody
from houston_shared.store import in_order, journal
from houston_shared.store.journal import Header
from houston_shared.store.plan import END, Ask, Plan, RowRecord, columns, from_rows
from houston_shared.store.queries import lineage


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
    completion_tokens: int | None
    reasoning_tokens: int | None


class Usage(RowRecord, frozen=True):
    """Tokens of all samples of a rollout, summaries included; None where no engine said."""

    samples: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None


def last_seq(rollout: str = "") -> Plan[int]:
    """Newest sequence of the journal, or of one rollout; 0 when there is none."""
    if rollout:
        rows = yield Ask("SELECT last_seq FROM rollouts WHERE id = ?", (rollout,))
    else:
        rows = yield Ask("SELECT coalesce(max(seq), 0) FROM events")
    return int(rows[0][0]) if rows else 0


def since(
    seq: int, rollout: str = "", limit: int = 1000, kinds: tuple[str, ...] = ()
) -> Plan[list[Header]]:
    """Events after `seq`, oldest first: what a reader missed while it was away."""
    if rollout:
        rows = yield from in_order.forward(columns(Header), rollout, seq, limit, kinds)
    else:
        rows = yield Ask(
            f"SELECT {columns(Header)} FROM events WHERE seq > ? {_kinds(kinds)}"
            " ORDER BY seq LIMIT ?",
            (seq, *kinds, limit),
        )
    return from_rows(Header, rows)


def newest(limit: int, rollout: str = "", kinds: tuple[str, ...] = ()) -> Plan[list[Header]]:
    """The last `limit` events, oldest first."""
    if rollout:
        rows = yield from in_order.backward(columns(Header), rollout, END, limit, kinds)
    else:
        rows = yield Ask(
            f"SELECT {columns(Header)} FROM events WHERE seq > 0 {_kinds(kinds)}"
            " ORDER BY seq DESC LIMIT ?",
            (*kinds, limit),
        )
    return from_rows(Header, rows[::-1])


def until(seq: int, rollout: str, limit: int, kinds: tuple[str, ...] = ()) -> Plan[list[Header]]:
    """The last `limit` events of a rollout up to `seq`, oldest first."""
    rows = yield from in_order.backward(columns(Header), rollout, seq + 1, limit, kinds)
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
    """Forks of a rollout, in order; of a branch those of the past that it shares, too."""
    found: list[Fork] = []
    for part in (yield from lineage.stretches(rollout)):
        rows = yield Ask(
            f"SELECT {columns(Fork)} FROM forks WHERE rollout = ? AND step BETWEEN ? AND ?"
            " ORDER BY number",
            part,
        )
        found += from_rows(Fork, rows)
    return found


def fork_body(fork: Fork) -> Plan[ForkBody]:
    """What a fork put into the context."""
    event = (yield from journal.by_seq([fork.seq]))[fork.seq]
    erased = ForkBody(k=fork.k, first_kept_step=fork.first_kept_step, summary=journal.ERASED)
    return (yield from journal.record(event, ForkBody, erased))


def samples(rollout: str, first: int = 1, last: int = END) -> Plan[list[Sample]]:
    """The ledger's entries for a range of steps, summaries included, in order."""
    rows = yield Ask(
        f"SELECT {columns(Sample)} FROM samples WHERE seq IN (SELECT seq FROM events"
        " WHERE rollout = ?1 AND part IS NOT NULL AND step BETWEEN ?2 AND ?3) ORDER BY seq",
        (rollout, first, last),
    )
    return from_rows(Sample, rows)


def usage(rollout: str) -> Plan[Usage]:
    """What a rollout's own samples cost, as the engines counted it."""
    rows = yield Ask(
        "SELECT count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),"
        " sum(reasoning_tokens) FROM samples WHERE seq IN"
        " (SELECT seq FROM events WHERE rollout = ? AND part IS NOT NULL)",
        (rollout,),
    )
    return Usage(*rows[0])


def sample(seq: int | None) -> Plan[Sample | None]:
    """The ledger's entry with this sequence; None when there is none."""
    rows = yield Ask(f"SELECT {columns(Sample)} FROM samples WHERE seq = ?", (seq,))
    return Sample(*rows[0]) if rows else None


def _kinds(kinds: tuple[str, ...]) -> str:
    """SQL that narrows to kinds."""
    return f"AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
