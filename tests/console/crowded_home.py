"""A home with eighteen rollouts of four tasks, as two people find it in the morning."""

from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import FileChange
from houston_shared.store.event_bodies import RolloutClaimed
from houston_shared.store.presence_queries import PresenceRow, current_person
from houston_shared.times_and_counts import now_us
from tests.console.home_builder import HomeBuilder

MINUTE = 60_000_000
BUDGET = "[budget]\nsteps = 400\nactive_seconds = 14400\n"


class One(NamedTuple):
    """A rollout of the crowd."""

    id: str
    task: str
    steps: int
    scores: tuple[float, ...] = ()
    marks: dict[str, str] = {}
    """Signals of its last step, with their reasons."""
    state: str = "running"
    by: str = "worker"
    reason: str = ""
    activity: str = "run_command"


CROWD = (
    One("count-words-7f3a", "count-words", 61, (20.0, 44.0, 54.2, 60.0),
        {"error_streak": "5 steps in a row in which a call failed"}),
    One("count-words-81bc", "count-words", 41, (88.0,), state="finished"),
    One("count-words-90d2", "count-words", 38, (30.0, 71.0, 42.0), {"score_fell": "42 after 71"}),
    One("count-words-a1c4", "count-words", 12),
    One("count-words-b7e0", "count-words", 55, (61.0, 66.0), activity="sleep 600 s"),
    One("speed-up-attention-04aa", "speed-up-attention", 118, (12.0, 18.0, 18.0),
        {"repeated_action": "the same call 6 times: python3 bench.py --size 4096"}),
    One("speed-up-attention-11b0", "speed-up-attention", 97, (35.0, 41.0)),
    One("speed-up-attention-2c9d", "speed-up-attention", 20, state="failed",
        reason="the engine refused the prompt: 140,112 tokens"),
    One("speed-up-attention-33f1", "speed-up-attention", 66, (22.0,), {"near_budget": "3% left"}),
    One("speed-up-attention-4e5e", "speed-up-attention", 8, state="queued",
        reason="waits for 1 GPU behind 2"),
    One("train-tokenizer-5a00", "train-tokenizer", 140, (54.2, 58.0, 61.5, 64.0, 64.0, 70.1)),
    One("train-tokenizer-6b11", "train-tokenizer", 77, (40.0,), state="paused", by="alice",
        reason="waits for data"),
    One("train-tokenizer-7c22", "train-tokenizer", 25,
        activity="waiting for the engine: connection refused"),
    One("train-tokenizer-8d33", "train-tokenizer", 51, (33.0, 35.0)),
    One("clean-data-9e44", "clean-data", 31, (48.0,), {"idle_sleep": "nothing runs 睡眠"}),
    One("clean-data-af55", "clean-data", 30, (51.0, 52.0)),
    One("clean-data-b066", "clean-data", 29, state="cancelled", by="ben"),
    One("clean-data-c177", "clean-data", 12),
)  # fmt: skip

TOLD = ("count-words-7f3a", "clean-data-9e44", "train-tokenizer-8d33", "train-tokenizer-5a00")
"""Rollouts that heard guidance."""


def build(path: Path) -> HomeBuilder:
    """The home; its newest rollouts have people around them."""
    builder = HomeBuilder(path / "home")
    with builder.bulk():
        for member in CROWD:
            _rollout(builder, member)
    for member in CROWD:
        builder.activity(member.id, member.activity if member.state == "running" else "")
    _people(builder)
    return builder


def _rollout(builder: HomeBuilder, member: One) -> None:
    builder.start(member.id, member.task, definition=f'name = "task"\n{BUDGET}')
    every = max(1, member.steps // (len(member.scores) + 1))
    scores = list(member.scores)
    for step in range(1, member.steps):
        if scores and step % every == 0:
            builder.scored(member.id, step, "Submit what there is.", scores.pop(0))
        else:
            _step(builder, member.id, step)
    calls = (("run_command", {"command": f"python3 run.py --seed {member.steps}"}),)
    builder.whole(
        member.id,
        member.steps,
        "Once more.",
        calls,
        attention=tuple(member.marks),
        reasons=dict(member.marks),
        success="error_streak" not in member.marks,
    )
    if member.state != "running":
        builder.state(member.id, member.state, member.by, member.reason)


def _step(builder: HomeBuilder, rollout: str, step: int) -> None:
    if step == 9 and rollout in TOLD:
        builder.say(rollout, f"g-{rollout}", "Read evaluate.py before you submit again.", "ben")
    if step % 8 == 3:
        change = FileChange(
            path=f"src/part_{step % 3}.py",
            kind="changed",
            added=3,
            removed=1,
            diff="@@ -1 +1 @@\n-a\n+b\n",
        )
        builder.whole(rollout, step, "Edit it.", files=(change,))
    else:
        builder.whole(rollout, step, "Look at it.", success=step % 11 != 7)


def look(builder: HomeBuilder, rollout: str, name: str, **fields: Any) -> None:
    """A row of presence, as the recorder keeps it."""
    now = now_us()
    defaults: dict[str, Any] = {
        **dict.fromkeys(PresenceRow.__struct_fields__, 0), "rollout": rollout, "name": name,
        "uid": current_person().uid, "verified": 1, "first": now, "last": now, "visits": 1,
        "visit_at": now,
    }  # fmt: skip
    builder.insert("looks", **{**defaults, **fields})


def mark_seen(builder: HomeBuilder, rollout: str, after: int, ago: int) -> None:
    """This person was at a rollout `ago` microseconds back, when the event `after` was newest."""
    at = now_us() - ago
    fields = {"seq": after, "seen_at": at, "before_seq": after, "before_at": at, "last": at}
    look(
        builder,
        rollout,
        current_person().name,
        **fields,
        active_us=42 * MINUTE,
        looked_us=60 * MINUTE,
    )


def claim(builder: HomeBuilder, rollout: str, by: str, note: str = "", **fields: Any) -> None:
    """Somebody looks after it, or leaves a note as they go."""
    body = RolloutClaimed(by=by, note=note, request=f"{rollout}{note}", uid=1, **fields)
    builder.event(EventKey(rollout), "claim", body)


def _people(builder: HomeBuilder) -> None:
    first = builder.connection.execute(
        "SELECT observation_seq FROM steps WHERE rollout = ? AND step = 20", (CROWD[0].id,)
    ).fetchone()[0]
    mark_seen(builder, CROWD[0].id, first, 360 * MINUTE)
    look(builder, CROWD[0].id, "ben", here=1, step=57, active_us=9 * MINUTE, looked_us=MINUTE)
    look(builder, CROWD[5].id, "ada", here=1, step=118)
    claim(builder, CROWD[5].id, "ada")
    claim(builder, CROWD[0].id, "ben")
    note = "It keeps a cache under /tmp that goes stale; I told it twice. Watch its next score."
    claim(builder, CROWD[0].id, "ben", note, release=True)
    claim(builder, CROWD[10].id, current_person().name)
