"""Verdicts on their way to the recorder, as ranges and messages; and a judge's, all of the way.

Only what differs from before is said. A run replaces what a judge said before, exactly: a step that
is not named any more becomes undecided. What people said is neither read nor touched. A message
that is sent again after a lost answer changes nothing, and a run that was broken off is completed
by the next.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from houston_shared.config import Loaded
from houston_shared.secret_values import redact
from houston_shared.sending import send
from houston_shared.store.plan import Plan
from houston_shared.store.queries import verdicts
from houston_shared.store.queries.verdicts import Given
from houston_shared.store.reader import Reader
from houston_shared.wire_people import RANGES, REASON_LIMIT, STEPS, JudgedSteps, Judgement
from houston_shared.wire_training import StoreVerdicts

MAYBE = "Some verdicts may have been stored."


class Said(NamedTuple):
    """What rules or a judge say of one step now."""

    verdict: Judgement
    reason: str = ""


def store(
    loaded: Loaded,
    reader: Reader,
    rollout: str,
    by: str,
    attempts: Mapping[int, int],
    said: Mapping[int, Said],
) -> int:
    """Have the recorder keep what a judge says of the steps of a rollout.

    by: `judge:` and more. attempts: of every step that was judged, the one that counts. said: by
    step; of others nothing is said any more. Returns of how many steps something else is said than
    before. Raises DaemonNotRunning and HoustonError with the daemon's words.
    """
    before = reader.run(_before(rollout))
    changed = different(before, by, attempts, said)
    for part in parts(list(ranges(changed))):
        message = StoreVerdicts(
            request=uuid.uuid4().hex, rollout=rollout, source="judge", by=by, steps=part
        )
        send(loaded.home, message, MAYBE, f"houston verdict {rollout}")
    return len(changed)


def different(
    before: Mapping[int, Given], by: str, attempts: Mapping[int, int], said: Mapping[int, Said]
) -> dict[int, Said]:
    """By step, what is said now and was not said so before; `undecided` takes a verdict back.

    What was said of an attempt that was replaced since, was not said of the step.
    """
    found: dict[int, Said] = {}
    for step, attempt in attempts.items():
        now, was = said.get(step, Said("undecided")), before.get(step)
        now = Said(now.verdict, redact(now.reason)[:REASON_LIMIT])
        if was is None or was.attempt != attempt:
            if now.verdict != "undecided":
                found[step] = now
        elif (was.verdict, was.reason, was.by) != (*now, by):
            found[step] = now
    return found


def ranges(found: Mapping[int, Said]) -> Iterator[JudgedSteps]:
    """The same as ranges of steps behind each other of which the same is said, in order."""
    numbered = enumerate(sorted(found))
    for (_, said), group in groupby(numbered, lambda one: (one[1] - one[0], found[one[1]])):
        steps = [step for _, step in group]
        for at in range(0, len(steps), STEPS):
            part = steps[at : at + STEPS]
            yield JudgedSteps(
                first=part[0], last=part[-1], verdict=said.verdict, reason=said.reason
            )


def parts(found: Sequence[JudgedSteps]) -> Iterator[tuple[JudgedSteps, ...]]:
    """As many ranges at once as a message holds."""
    part: list[JudgedSteps] = []
    steps = 0
    for one in found:
        size = one.last - one.first + 1
        if part and (len(part) == RANGES or steps + size > STEPS):
            yield tuple(part)
            part, steps = [], 0
        part.append(one)
        steps += size
    if part:
        yield tuple(part)


def _before(rollout: str) -> Plan[dict[int, Given]]:
    standing = yield from verdicts.standing(rollout)
    return {step: one for step, given in standing.items() for one in given if one.source == "judge"}
