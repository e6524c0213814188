"""When a console says where it looks: a table of moments, without a daemon and without waiting."""

from houston_console.app.daemon_link import PresenceReport

# What happens, and whether something is due then: `at R STEP`, `key`, `wait SECONDS`, `forget`.
STORIES: dict[str, list[tuple[str, tuple[str, int, bool] | None]]] = {
    "at once, then again before the visit would end": [
        ("at r 5", ("r", 5, False)), ("wait 4", None), ("wait 7", None),
        ("wait 2", ("r", 5, False)), ("wait 11", None), ("wait 1", ("r", 5, False)),
    ],
    "another rollout at once, home as well": [
        ("at r 5", ("r", 5, False)), ("at s 1", ("s", 1, False)), ("at - 0", ("", 0, False)),
        ("wait 1", None),
    ],
    "another step soon, not with every key": [
        ("at r 5", ("r", 5, False)), ("at r 6", None), ("wait 3", None), ("at r 7", None),
        ("wait 2", ("r", 7, False)), ("at r 8", None),
    ],
    "a key makes it active, a minute without one ends that": [
        ("at r 5", ("r", 5, False)), ("wait 6", None), ("key", ("r", 5, True)),
        ("wait 12", ("r", 5, True)), ("wait 12", ("r", 5, True)), ("wait 12", ("r", 5, True)),
        ("wait 12", ("r", 5, True)), ("wait 11", None), ("wait 1", ("r", 5, False)),
    ],
    "another daemon hears it at once": [
        ("at r 5", ("r", 5, False)), ("wait 1", None), ("forget", ("r", 5, False)),
    ],
}  # fmt: skip


def test_where_a_console_looks_is_said_in_time_and_not_more_often() -> None:
    for what, story in STORIES.items():
        now = [100.0]
        presence = PresenceReport("", lambda now=now: now[0])  # type: ignore[misc]
        for at, (event, wanted) in enumerate(story):
            kind, *words = event.split()
            if kind == "at":
                presence.set_location(words[0].strip("-"), int(words[1]))
            elif kind == "key":
                presence.note_key()
            elif kind == "wait":
                now[0] += float(words[0])
            else:
                presence.forget_sent()
            due = presence.due_message()
            report = due and (due.rollout, due.step, due.active)
            assert report == wanted, (what, at, event)
            if due:
                presence.mark_sent(due)
