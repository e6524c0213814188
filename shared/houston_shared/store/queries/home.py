"""All rollouts as people see them from afar, in one read: what `need` orders and lists show."""

from houston_shared.clock import now_us
from houston_shared.need import Standing
from houston_shared.person import Person
from houston_shared.records import ENDED
from houston_shared.store import in_order
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import actions, attention, claims, looking, rollouts, scores
from houston_shared.store.queries.looking import Look
from houston_shared.store.queries.rollouts import Rollout


def standings(
    person: Person | None = None,
    now: int = 0,
    task: str = "",
    state: str = "",
    rollout: str = "",
    reasons: bool = True,
    bodies: bool = True,
) -> Plan[list[Standing]]:
    """Every rollout, newest first; of one task, in one state, or one alone when named.

    person: whose new steps are counted. now: UTC microseconds, the clock's when 0. reasons: also
    read why signals stand. bodies: also read last actions and scores, of rollouts that live.
    """
    moment = now or now_us()
    found = (
        [(yield from rollouts.rollout(rollout))]
        if rollout
        else (yield from rollouts.all_rollouts(task, state))
    )
    alive = [one.id for one in found if one.state not in ENDED]
    marked = yield from attention.recent(states=attention.ALIVE, rollout=rollout, reasons=reasons)
    marks = yield from _marked_seqs()
    low = yield from _ended_low()
    queued = yield from _queued()
    heard = yield from _heard()
    held = yield from claims.all_claims()
    looks = looking.by_rollout((yield from looking.everybody()))
    acted = (yield from actions.last(alive)) if bodies else {}
    scored = (
        (yield from scores.history([one.id for one in found if one.evaluations])) if bodies else {}
    )
    standing = []
    for one in found:
        mine = looks.get(one.id, [])
        seen_seq = max((look.seq for look in mine), default=0)
        count, since = queued.get(one.id, (0, 0))
        step, followed = heard.get(one.id, (0, 0))
        standing.append(
            Standing(
                rollout=one,
                marked=marked.get(one.id, ()),
                seen_seq=seen_seq,
                marked_seq=marks.get(one.id, 0),
                low_seq=low.get(one.id, 0),
                unanswered=step if seen_seq < followed else 0,
                queued=count,
                queued_at=since,
                holding=held.get(one.id),
                lookers=[look for look in mine if look.looks(moment)],
                new_steps=(yield from _new_steps(one, mine, person, moment)),
                scores=scored.get(one.id, ()),
                acted=acted.get(one.id),
            )
        )
    return standing


def _marked_seqs() -> Plan[dict[str, int]]:
    """By rollout, the newest observation with signals among its last steps."""
    rows = yield Ask(
        "SELECT r.id, max(s.observation_seq) FROM rollouts r JOIN steps s ON s.rollout = r.id"
        " AND s.step > r.steps - ? AND s.step <= r.steps AND s.current AND s.attention <> ''"
        " WHERE r.state IN ('queued', 'running', 'paused') GROUP BY r.id",
        (attention.LAST,),
    )
    return dict(rows)


def _ended_low() -> Plan[dict[str, int]]:
    """By rollout that finished low, the end of its last step: by the threshold of its task."""
    rows = yield Ask(
        "SELECT r.id, s.observation_seq FROM rollouts r JOIN steps s ON s.rollout = r.id"
        " AND s.step = r.steps AND s.current WHERE r.state = 'finished'"
        " AND ',' || s.attention || ',' LIKE '%,low_finish,%'"
    )
    return dict(rows)


def _queued() -> Plan[dict[str, tuple[int, int]]]:
    """By rollout, how much guidance waits, and since when."""
    rows = yield Ask(
        "SELECT rollout, count(*), min(queued_at) FROM guidance WHERE state = 'queued'"
        " GROUP BY rollout"
    )
    return {rollout: (count, since) for rollout, count, since in rows}


def _heard() -> Plan[dict[str, tuple[int, int]]]:
    """By rollout that lives, the newest step that heard guidance, and the end of the one after."""
    rows = yield Ask(
        "SELECT g.rollout, g.step, s.observation_seq FROM (SELECT rollout, max(delivered_step)"
        " AS step FROM guidance WHERE state = 'delivered' GROUP BY rollout) g"
        " JOIN rollouts r ON r.id = g.rollout AND r.state IN ('queued', 'running', 'paused')"
        " JOIN steps s ON s.rollout = g.rollout AND s.step = g.step + 1 AND s.current"
        " WHERE s.observation_seq IS NOT NULL"
    )
    return {rollout: (step, seq) for rollout, step, seq in rows}


def _new_steps(
    one: Rollout, looks: list[Look], person: Person | None, now: int
) -> Plan[int | None]:
    """Steps closed since a person was here; None for who never was, or where nobody asks.

    Who is there now has what is new since the visit before.
    """
    mine = next((look for look in looks if (look.name, look.uid) == person), None)
    if mine is None:
        return None
    before = looking.seen(mine, now) if mine.looks(now) else looking.newest(mine)
    if before is None:
        return None
    if before.seq >= one.last_seq:
        return 0
    begun = yield from in_order.step_at(one.id, before.seq)
    rows = yield Ask(
        "SELECT count(*) FROM steps WHERE rollout = ? AND step >= ? AND current"
        " AND observation_seq > ?",
        (one.id, begun, before.seq),
    )
    return int(rows[0][0])
