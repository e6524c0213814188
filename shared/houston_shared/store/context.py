"""The exact request of a step: its messages, its token ids, and the text these decode to.

Nothing is stored for it but a fork and the events after it (DESIGN §4). `at` reads, `complete`
decodes (slow the first time: it loads the tokenizer), `context_at` does both.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.records import Delivered, ForkBody, Head, Message
from houston_shared.store import ledger, messages
from houston_shared.store.messages import Since
from houston_shared.store.plan import Plan
from houston_shared.store.queries import guidance, progress, rollouts, steps
from houston_shared.store.queries.progress import Fork, Sample
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader

WITHOUT_IDS = "The engine works without token ids: `rendered` is made from the messages."
ERASED_IDS = "Some token ids were erased from the journal: `rendered` is made from the messages."


class Request(NamedTuple):
    """What the journal holds of one request."""

    rollout: str
    step: int
    attempt: int
    sample: Sample
    parent: Sample | None
    """The sample that this prompt extends."""
    head: Head | None
    messages: list[Message]
    token_ids: list[int] | None
    """The prompt, exactly as it was sent; None without token ids."""
    note: str
    """Why there are no token ids; empty when there are."""


class ContextView(NamedTuple):
    """One request as people and programs see it: the JSON of `context --json` and the eye."""

    messages: list[Message]
    rendered: str
    """The prompt's ids, decoded; made from the messages where there are none."""
    token_ids: list[int] | None
    drift: str
    """How this prompt relates to the one before: clean, stripped, realigned, forked."""
    parent: Sample | None
    sample: Sample
    note: str
    """What a reader should know about `rendered`; empty when it is what was sent."""
    tools: tuple[dict[str, Any], ...] = ()
    """Schemas of the tools that were offered, in OpenAI's form. Where there are ids they are part
    of `rendered`; other engines get them beside the messages. Not in the JSON (DESIGN §9)."""


def context_at(reader: Reader, rollout: str, step: int, attempt: int | None = None) -> ContextView:
    """The request of the policy's sample at a step (its current attempt unless named).

    rollout: a whole id. Raises HoustonError when there is no such step or its ledger is broken.
    """
    return complete(reader.run(at(rollout, step, attempt)))


def at(rollout: str, step: int, attempt: int | None = None) -> Plan[Request]:
    """Everything of a request but its decoded text; see `context_at`."""
    row = yield from _row(rollout, step, attempt)
    found = yield from _sample(row)
    one = yield from rollouts.rollout(rollout)
    head = yield from rollouts.head(one)
    parent = yield from progress.sample(found.parent_seq)
    note = "" if found.new_ids is not None else WITHOUT_IDS
    try:
        ids = yield from ledger.prompt_ids(row.sample_seq)
    except ledger.Erased:
        ids, note = None, ERASED_IDS
    said = yield from _messages(one, step, head)
    return Request(rollout, step, row.attempt, found, parent, head, said, ids, note)


def said(rollout: str, step: int) -> Plan[list[Message]]:
    """The messages of the request of a step, without its ids."""
    one = yield from rollouts.rollout(rollout)
    head = yield from rollouts.head(one)
    return (yield from _messages(one, step, head))


def cached_characters(request: Request, rendered: str) -> int | None:
    """How much of `rendered` the engine had in its cache; None where that cannot be told.

    rendered: the request's ids, decoded. A character that the last of the cached tokens only
    begins is not counted.
    """
    cached = request.sample.cached_tokens
    if cached is None or request.token_ids is None:
        return None
    text, _ = _decode(request.token_ids[:cached], request.head)
    if text is None:
        return None
    pairs = enumerate(zip(text, rendered, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(text), len(rendered)))


def complete(request: Request) -> ContextView:
    """The request with its ids decoded by the tokenizer that the head names."""
    rendered, note = None, request.note
    if request.token_ids is not None:
        rendered, note = _decode(request.token_ids, request.head)
    if rendered is None:
        rendered = messages.plain(request.messages)
    sample = request.sample
    tools = request.head.tools if request.head else ()
    return ContextView(
        request.messages,
        rendered,
        request.token_ids,
        sample.drift,
        request.parent,
        sample,
        note,
        tools,
    )


def as_json(view: ContextView) -> dict[str, Any]:
    """`context R STEP --json` (DESIGN §9)."""
    parent = view.parent
    return {
        "messages": [_message(one) for one in view.messages],
        "rendered": view.rendered,
        "token_ids": view.token_ids,
        "drift": view.drift,
        "parent": None
        if parent is None
        else {
            "rollout": parent.rollout,
            "step": parent.step,
            "attempt": parent.attempt,
            "role": parent.role,
            "kept": view.sample.kept,
        },
    }


def _message(one: Message) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(one)
    return found


def _row(rollout: str, step: int, attempt: int | None) -> Plan[steps.StepRow]:
    found = yield from steps.rows(rollout, step, step, attempts=attempt is not None)
    for row in found:
        if attempt in (None, row.attempt):
            return row
    newest = yield from steps.last(rollout)
    what = f"step {step}" if attempt is None or not found else f"attempt {attempt} of step {step}"
    there = f"It has steps 1 to {newest}." if newest else "It has no step yet."
    raise HoustonError(f"Rollout {rollout} has no {what}.", there, f"houston steps {rollout}")


def _sample(row: steps.StepRow) -> Plan[Sample]:
    found = yield from progress.sample(row.sample_seq)
    if found is None:
        raise HoustonError(
            f"The ledger has no entry for step {row.step} of rollout {row.rollout}.",
            "Its request cannot be shown.",
            "houston verify",
        )
    return found


def _messages(one: Rollout, step: int, head: Head | None) -> Plan[list[Message]]:
    """The messages of the context that `step` was sampled in."""
    spec = yield from rollouts.spec(one)
    since = yield from _since(one.id, step)
    return messages.of_context(head, since, strip=spec.thoughts == "strip")


def _since(rollout: str, step: int) -> Plan[Since]:
    forks = yield from progress.forks(rollout)
    begun = [one for one in forks if one.step <= step]
    if not begun:
        return Since(None, None, (), (yield from steps.records(rollout, 1, step - 1)))
    fork = begun[-1]
    body = yield from progress.fork_body(fork)
    said = yield from kept_guidance(rollout, fork, body)
    last = yield from steps.record(rollout, fork.first_kept_step - 1)
    found = yield from steps.records(rollout, fork.first_kept_step, step - 1)
    return Since(body, last, said, found)


def kept_guidance(rollout: str, fork: Fork, body: ForkBody) -> Plan[Sequence[Delivered]]:
    """Guidance that the fork keeps verbatim, in its order."""
    said = yield from guidance.delivered(rollout, 1, fork.first_kept_step - 1)
    by_id = {one.id: one for joined in said.values() for one in joined}
    return [by_id[one] for one in body.guidance if one in by_id]


def _decode(ids: list[int], head: Head | None) -> tuple[str | None, str]:
    """The text of the ids, or None and why there is none."""
    file = head.tokenizer if head else ""
    if not file:
        return None, "The head names no tokenizer: `rendered` is made from the messages."
    try:
        tokenizer = _tokenizer(file)
    except ImportError:
        return None, (
            "The package `tokenizers` is not installed: `rendered` is made from the messages."
        )
    except _Unusable as problem:
        return None, f"{problem} `rendered` is made from the messages."
    return str(tokenizer.decode(ids, skip_special_tokens=False)), ""


class _Unusable(Exception):
    """A tokenizer file that cannot be read."""


@lru_cache(maxsize=4)
def _tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer  # only here: 17 ms, and 0.1 s for a file

    if not Path(file).is_file():
        raise _Unusable(f"The tokenizer file {file} is not there.")
    try:
        return Tokenizer.from_file(file)
    except Exception as problem:  # noqa: BLE001  # the library raises nothing narrower
        raise _Unusable(f"The tokenizer file {file} cannot be read ({problem}).") from None
