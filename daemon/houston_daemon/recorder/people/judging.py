"""Verdicts on closed steps: keep, mask, or taken back. Every one stays in the journal.

People's, and beside them those of rules and of judges, which never touch a person's.

A step that a branch shares is its parent's, and so is the verdict on it. Any annotator may judge
what another has judged; who asks with `seen` is told instead of overruling unseen.
"""

from typing import Any

from houston_daemon.recorder.people import said_before
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.people.say import rollout
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import rebuild
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.errors import ExitCode
from houston_shared.secret_values import redact
from houston_shared.store.bodies import VerdictGiven
from houston_shared.store.queries import lineage
from houston_shared.store.queries.lineage import Stretch
from houston_shared.wire import Done
from houston_shared.wire_people import RANGES, REASON_LIMIT, STEPS, GiveVerdicts, JudgedSteps
from houston_shared.wire_training import StoreVerdicts

NAME_LIMIT = 200
"""Characters of the name of a judge."""
SPEAKERS = {"rule": "rules", "judge": "judge"}
"""How the name of who speaks begins, by source."""

Part = tuple[JudgedSteps, Stretch]
"""What is said, and of whose steps."""


def judge(store: Store, message: GiveVerdicts, author: Author) -> Done:
    """Keep, mask or leave ranges of steps undecided; the same request again changes nothing."""
    request, parts = said_before.key(message.request), _parts(store, message)
    if done := _meanwhile(store, parts, message, author):
        return Done(seq=done)
    return _append(store, parts, {"by": author.name, "request": request, **author.fields})


def keep(store: Store, message: StoreVerdicts, author: Author) -> Done:
    """What rules or a judge say, beside what people said; the same request again changes nothing.

    They are named by what said it; who ran it, is kept with it.
    """
    request, parts = said_before.key(message.request), _parts(store, message)
    if message.by.partition(":")[0] != SPEAKERS[message.source] or len(message.by) > NAME_LIMIT:
        raise denial(
            f"{message.by[:NAME_LIMIT]!r} is no name of a {message.source}.",
            f"It begins with {SPEAKERS[message.source]!r} and has at most {NAME_LIMIT} characters.",
            code=ExitCode.USAGE,
        )
    for owner in dict.fromkeys(part.rollout for _, part in parts):
        for word in said_before.since(store, owner, "verdict", 0):
            said = word.body
            assert isinstance(said, VerdictGiven)
            if (said.request, said.uid, said.source) == (request, author.uid, message.source):
                return Done(seq=word.seq)
    who = {"by": message.by, "source": message.source, "asked": author.name, **author.fields}
    return _append(store, parts, {"request": request, **who})


def _parts(store: Store, message: GiveVerdicts | StoreVerdicts) -> list[Part]:
    """What is said of whose steps; raises HoustonError for what cannot be judged."""
    row = rollout(store, message.rollout)
    if not 0 < len(message.steps) <= RANGES:
        raise denial(f"A message judges 1 to {RANGES} ranges of steps.", code=ExitCode.USAGE)
    for one in message.steps:
        _check(row, one)
    if sum(one.last - one.first + 1 for one in message.steps) > STEPS:
        raise denial(
            f"A message judges at most {STEPS} steps.", "Say it in parts.", code=ExitCode.USAGE
        )
    return [
        (one, part)
        for one in message.steps
        for part in rebuild.run(store, lineage.stretches(row.id, one.first, one.last))
    ]


def _append(store: Store, parts: list[Part], said: dict[str, Any]) -> Done:
    for one, part in parts:
        body = VerdictGiven(last=part.last, verdict=one.verdict, reason=redact(one.reason), **said)
        store.journal.append(Key(part.rollout, part.first), "verdict", body)
    return Done(seq=store.journal.seq)


def _check(row: Rollout, one: JudgedSteps) -> None:
    if not 1 <= one.first <= one.last <= row.steps:
        there = f"closed steps 1 to {row.steps}" if row.steps else "no closed step yet"
        asked = f"step {one.first}" if one.first == one.last else f"steps {one.first} to {one.last}"
        raise denial(
            f"{row.id} has {there}; {asked} cannot be judged.", f"houston steps {row.id} -n 1"
        )
    if len(one.reason) > REASON_LIMIT:
        raise denial(f"A reason has at most {REASON_LIMIT} characters.", code=ExitCode.USAGE)


def _meanwhile(store: Store, parts: list[Part], message: GiveVerdicts, author: Author) -> int:
    """The event that says the same already, 0 for none; raises HoustonError where another judged
    one of the steps since.
    """
    owners = dict.fromkeys(part.rollout for _, part in parts)
    words = [
        (owner, word)
        for owner in owners
        for word in said_before.since(store, owner, "verdict", message.seen)
    ]
    for _, word in words:
        assert isinstance(word.body, VerdictGiven)
        if word.body.request == message.request and not said_before.others(word, author):
            return word.seq
    for owner, word in words if message.seen else ():
        said = word.body
        assert isinstance(said, VerdictGiven)
        shared = any(
            part.rollout == owner and part.first <= said.last and word.step <= part.last
            for _, part in parts
        )
        if shared and said.source == "human" and said_before.others(word, author):
            raise denial(
                f"{said.by} said {said.verdict} of {_steps(word.step, said.last)} meanwhile.",
                f"houston verdict {message.rollout}",
            )
    return 0


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"
