"""The checker finds what is wrong: one right history, and each way in which it can be wrong."""

import copy
from collections.abc import Callable

import pytest

from tests.faults.history import (
    Acked,
    Event,
    Heard,
    History,
    Key,
    Kind,
    Prompt,
    Spoken,
    Stored,
    Told,
    check,
)


def key(step: int, part: str = "observation") -> Key:
    return Key("r", step, 1, part)


def right() -> tuple[History, Stored]:
    """Two steps; the first heard two words; the third sample was stored, its ack never seen."""
    said = [Heard("g1", "stop"), Heard("g2", "and look")]
    acked = [
        Acked(key(1, "sample"), "a", 3),
        Acked(key(1), "b", 6, False, tuple(said)),
        Acked(key(1), "b", 6, True, tuple(said)),  # sent again after a lost ack
        Acked(key(2, "sample"), "c", 8),
        Acked(key(2), "d", 9),
    ]
    sent = {(ack.key, ack.words) for ack in acked}
    sent |= {(key(2, "sample"), "c'"), (key(3, "sample"), "e")}
    spoken = [Spoken("g1", "r", "stop"), Spoken("g2", "r", "and look"), Spoken("g3", "r", "well")]
    prompts = [Prompt("r", 1, "p"), Prompt("r", 2, "q"), Prompt("r", 2, "q")]
    events = [
        Event(3, key(1, "sample"), "a"),
        Event(6, key(1), "b"),
        Event(8, key(2, "sample"), "c"),
        Event(9, key(2), "d"),
        Event(11, key(3, "sample"), "e"),
    ]
    guidance = [
        Told(4, "g1", "r", "stop", 1),
        Told(5, "g2", "r", "and look", 1),
        Told(10, "g3", "r", "well", None),
        Told(12, "g4", "r", "its ack was lost", None),
    ]
    return History(sent, acked, spoken, prompts), Stored(events, guidance, {("r", 2): "q"})


def test_a_right_history_has_no_finding() -> None:
    assert check(*right()) == []


def test_what_the_recorder_closes_by_itself_was_sent_by_nobody() -> None:
    history, stored = right()
    stored.events = [*stored.events, Event(13, key(3, "call.0"), "x"), Event(14, key(3), "y")]
    assert len(check(history, stored)) == 2
    stored.closed = {"r": 3}
    assert check(history, stored) == []
    stored.closed = {"r": 2}
    assert {one.kind for one in check(history, stored)} == {"invented"}, "only of its last step"


Break = Callable[[History, Stored], None]


def events(change: Callable[[list[Event]], object]) -> Break:
    def broken(_: History, stored: Stored) -> None:
        changed = list(stored.events)
        change(changed)
        stored.events = changed

    return broken


def guidance(change: Callable[[list[Told]], object]) -> Break:
    def broken(_: History, stored: Stored) -> None:
        changed = list(stored.guidance)
        change(changed)
        stored.guidance = changed

    return broken


def put(index: int, **fields: object) -> Callable[[list[Event]], object]:
    return lambda all: all.__setitem__(index, all[index]._replace(**fields))  # type: ignore[arg-type]


def told(index: int, **fields: object) -> Callable[[list[Told]], object]:
    return lambda all: all.__setitem__(index, all[index]._replace(**fields))  # type: ignore[arg-type]


def heard(index: int, *words: Heard) -> Break:
    def broken(history: History, _: Stored) -> None:
        history.acked[index] = history.acked[index]._replace(heard=words)

    return broken


WRONG: dict[str, tuple[Kind, Break]] = {
    "an acked message is gone": ("lost", events(lambda all: all.pop(1))),
    "the last acked message is gone": ("lost", events(lambda all: all.pop(3))),
    "a message is stored twice": (
        "doubled",
        events(lambda all: all.append(Event(13, key(2), "d"))),
    ),
    "a message is stored in other words": ("altered", events(put(1, words="x"))),
    "a message is stored that nobody sent": ("invented", events(put(4, words="x"))),
    "a closed rollout has a sample that nobody took": (
        "invented",
        lambda history, stored: (
            stored.closed.update(r=3),
            history.sent.discard((key(3, "sample"), "e")),
        ),
    ),
    "a message has another number": ("reordered", events(put(3, seq=10))),
    "messages changed places": (
        "reordered",
        events(lambda all: all.__setitem__(slice(1, 3), [all[2], all[1]])),
    ),
    "an ack names an earlier number than the one before": (
        "reordered",
        lambda history, _: history.acked.insert(0, history.acked.pop(3)),
    ),
    "acked guidance is gone": ("lost", guidance(lambda all: all.pop(2))),
    "guidance is stored twice": (
        "doubled",
        guidance(lambda all: all.append(all[2]._replace(number=13))),
    ),
    "guidance has other words": ("altered", guidance(told(2, text="wel"))),
    "guidance went to another rollout": ("altered", guidance(told(2, rollout="s"))),
    "guidance was queued in another order": ("reordered", guidance(told(2, number=3))),
    "a step did not hear what is stored as delivered": ("lost", heard(1, Heard("g1", "stop"))),
    "a step heard other words": (
        "altered",
        heard(1, Heard("g1", "go"), Heard("g2", "and look")),
    ),
    "a step heard in another order": (
        "lost",
        heard(1, Heard("g2", "and look"), Heard("g1", "stop")),
    ),
    "two steps heard the same": ("doubled", heard(4, Heard("g1", "stop"))),
    "a step heard what was never delivered": ("altered", heard(4, Heard("g3", "well"))),
    "what was said later was heard earlier": ("reordered", guidance(told(0, step=2))),
    "a resumed worker asks with another context": (
        "altered",
        lambda history, _: history.prompts.append(Prompt("r", 2, "other")),
    ),
    "the stored context is not the one that was asked with": (
        "altered",
        lambda _, stored: stored.contexts.update({("r", 1): "other"}),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_found(name: str) -> None:
    kind, broken = WRONG[name]
    history, stored = copy.deepcopy(right())
    broken(history, stored)
    assert kind in {finding.kind for finding in check(history, stored)}, name
