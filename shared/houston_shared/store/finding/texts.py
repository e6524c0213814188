"""What of an event is looked at: the texts of its body, each with a word for where it stands."""

from collections.abc import Iterator

import msgspec

from houston_shared.records import ObservationBody, Result
from houston_shared.store.finding.query import What
from houston_shared.store.searchable import KINDS, text_of, values

SEARCHES = frozenset({"search", "web_search", "web_browse"})
"""Kinds of results that are searches or pages."""
EVENTS: dict[What, tuple[str, ...]] = {
    "steps": KINDS,
    "diffs": ("observation",),
    "searches": ("result",),
    "terminals": (),
}
"""Kinds of events that hold what is looked for."""


def texts(what: What, kind: str, body: bytes) -> Iterator[tuple[str, str]]:
    """Texts of an event's body: what each is called, and the text.

    Raises msgspec.MsgspecError when the body is damaged.
    """
    if what == "diffs":
        for change in msgspec.msgpack.decode(body, type=ObservationBody).files:
            yield change.path, f"{change.path}\n{change.diff}"
    elif what == "searches":
        result = msgspec.msgpack.decode(body, type=Result)
        if result.kind in SEARCHES:
            asked = "\n".join(values(result.call.arguments))
            yield result.call.name, f"{asked}\n{result.text}"
    else:
        yield kind, text_of(kind, body)
