"""What the eye knows of one request: read in one short transaction, then worked out in a thread."""

from typing import NamedTuple

from houston_console.app.eye.cached import Reach
from houston_shared.store import context, context_change
from houston_shared.store.context import ContextView, Request
from houston_shared.store.context_change import Around, Change, Cut, Summarised
from houston_shared.store.plan import Plan
from houston_shared.store.queries import steps


class Raw(NamedTuple):
    """What the journal holds."""

    request: Request
    around: Around
    newest: int
    """The newest step there is."""


class Seen(NamedTuple):
    """One request and how it stands to the one before."""

    step: int
    newest: int
    view: ContextView
    change: Change | None
    """None for the first step."""
    summarised: list[Summarised]
    cuts: list[Cut]
    reach: Reach | None
    """None where the engine says nothing of its cache, or had nothing in it."""

    @property
    def new(self) -> frozenset[int]:
        """Numbers of the messages that the request before did not have."""
        return frozenset(one.number for one in self.change.new) if self.change else frozenset()


def raw(rollout: str, step: int) -> Plan[Raw]:
    """Read it."""
    request = yield from context.at(rollout, step)
    around = yield from context_change.around(rollout, step)
    return Raw(request, around, (yield from steps.last(rollout)))


def worked_out(raw: Raw) -> Seen:
    """Decode and compare; takes a moment where a context has 100,000 tokens."""
    request, around = raw.request, raw.around
    view = context.complete(request)
    change = None
    if around.before is not None:
        change = context_change.change(around.before, view.messages)
    cuts = context_change.cuts(view.messages)
    reach = _reach(request, view)
    return Seen(request.step, raw.newest, view, change, around.summarised, cuts, reach)


def _reach(request: Request, view: ContextView) -> Reach | None:
    sample = view.sample
    if not sample.cached_tokens:
        return None
    of = sample.prompt_tokens or len(view.token_ids or ())
    characters = None if view.note else context.cached_characters(request, view.rendered)
    return Reach(sample.cached_tokens, of, characters)
