"""From what rules find to messages for the recorder: only what differs from what stands.

Running rules twice sends nothing the second time. It sends nothing itself, and knows no judge.
"""

import uuid
from collections.abc import Mapping, Sequence

from houston_daemon.supervision import ruling
from houston_daemon.supervision.rules.catalog import found as find
from houston_daemon.supervision.storing import Said, parts, ranges
from houston_daemon.supervision.trace import Trace
from houston_shared.store.queries.verdicts import Given
from houston_shared.wire_people import JudgedSteps
from houston_shared.wire_training import StoreVerdicts

BY = "rules"


def messages(
    trace: Trace, stands: Mapping[int, Sequence[Given]], claimed: str = ""
) -> list[StoreVerdicts]:
    """What brings the store from what stands to what rules say; empty where nothing differs.

    stands: `queries.verdicts.standing` of the rollout. claimed: as in every message of a person.
    Raises as `catalog.found`.
    """
    return [
        StoreVerdicts(
            request=uuid.uuid4().hex,
            rollout=trace.rollout,
            source="rule",
            by=BY,
            steps=part,
            claimed=claimed,
        )
        for part in parts(changes(trace, stands))
    ]


def changes(trace: Trace, stands: Mapping[int, Sequence[Given]]) -> list[JudgedSteps]:
    """The same as ranges of steps, in order: to be masked, or undecided where no rule masks any
    more."""
    said = ruling.said(trace, find(trace))
    differ: dict[int, Said] = {}
    for step in trace.steps:
        if step.inherited:
            continue
        now = said.get(step.step, Said("undecided"))
        before = _before(stands.get(step.step, ()), step.attempt)
        if now != before:
            differ[step.step] = now
    return list(ranges(differ))


def _before(given: Sequence[Given], attempt: int) -> Said:
    for one in given:
        if one.source == "rule" and one.attempt == attempt:
            return Said(one.verdict, one.reason)
    return Said("undecided")
