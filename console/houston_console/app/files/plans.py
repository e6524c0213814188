"""What a call returned, as the model saw it."""

import msgspec

from houston_shared.store import journal
from houston_shared.store.plan import Plan


class _Text(msgspec.Struct, frozen=True):
    text: str = ""


def result_text(seq: int) -> Plan[str]:
    """What one call returned, as the model saw it."""
    event = (yield from journal.by_seq([seq])).get(seq)
    if event is None:
        return ""
    erased = _Text(journal.ERASED)
    return (yield from journal.record(event, _Text, erased)).text
