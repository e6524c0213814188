"""What the console knows without a screen: who is needed, the queue, drafts on disk, the keys."""

import re
from pathlib import Path
from typing import Any

from houston_console.app.console_state import ConsoleState, NeedsBoard, RolloutChanges
from houston_console.app.key_bindings import KEYS
from houston_console.panes.guidance_outbox import (
    GuidanceDraft,
    GuidanceOutbox,
    merge_guidance_entries,
)
from houston_shared.home import Home
from houston_shared.records import Guidance
from houston_shared.store.attention_ranking import RolloutOverview, compute_rollout_need
from houston_shared.store.rollout_queries import RolloutRow

_ROLLOUT: dict[str, Any] = {
    **dict.fromkeys(("paused_by", "reason", "engine", "policy", "group_id", "parent"), ""),
    **dict.fromkeys(("forks", "steps", "active_us", "evaluations", "errors", "last_seq"), 0),
    **dict.fromkeys(("parent_step", "best_score", "last_score", "head_seq"), None),
    "task": "t",
    "state": "running",
    "sandbox": "bubblewrap",
    "first_step": 1,
    "activity": "",
    "created_at": 0,
    "updated_at": 0,
    "spec_seq": 1,
}


def rollout(id: str, **fields: Any) -> RolloutRow:
    return RolloutRow(**{**_ROLLOUT, "id": id, **fields})


def guidance(id: str, **fields: Any) -> Guidance:
    defaults = {"rollout": "r", "author": "a", "text": id, "mode": "next", "state": "queued"}
    return Guidance(
        id=id, **{**defaults, "step": None, "queued_at": "", "delivered_at": None, **fields}
    )


def test_who_needs_somebody_is_first_and_the_rest_is_as_new_as_the_rows() -> None:
    state = ConsoleState()
    ones = [rollout("b", task="y", created_at=2), rollout("a", task="y", created_at=3)]
    assert state.merge(RolloutChanges([*ones, rollout("c", task="x")], {"a": 1}, 9))
    assert [need.overview.rollout.id for need in state.needs()] == ["a", "b", "c"]
    failed = compute_rollout_need(RolloutOverview(rollout("c", task="x", state="failed")), 0)
    state.board = NeedsBoard(
        [failed, *(compute_rollout_need(RolloutOverview(row), 0) for row in ones)]
    )
    state.merge(RolloutChanges([rollout("b", task="y", steps=7)], {"a": 1}, 10))
    standings = {need.overview.rollout.id: need.overview for need in state.needs()}
    assert list(standings) == ["c", "b", "a"]
    assert (standings["b"].rollout.steps, standings["a"].queued) == (7, 1)
    assert not state.merge(RolloutChanges([], {"a": 1}, 10))
    state.announced_seq = 12
    assert state.lag == 2


def test_only_a_single_rollout_is_opened_by_itself() -> None:
    state = ConsoleState()
    assert state.only_one() == ""
    state.merge(RolloutChanges([rollout("one")], {}, 1))
    assert state.only_one() == "one"
    state.merge(RolloutChanges([rollout("two")], {}, 2))
    assert state.only_one() == ""


def test_a_message_that_arrived_is_never_shown_as_unsent(tmp_path: Path) -> None:
    outbox = GuidanceOutbox(Home(tmp_path), tmp_path)
    first, second = outbox.post("r", "first", "next"), outbox.post("r", "second", "wake")
    shown = merge_guidance_entries(
        [guidance("older"), guidance(first.id)], outbox.entries("r", "me")
    )
    assert [(entry.id, entry.state) for entry in shown] == [
        (second.id, "unsent"),
        ("older", "queued"),
        (first.id, "queued"),
    ]


def test_the_outbox_finds_everything_again(tmp_path: Path) -> None:
    outbox = GuidanceOutbox(Home(tmp_path), tmp_path)
    strange = "r/../[x] ü"
    outbox.store_draft(GuidanceDraft(strange, "half a sen", edits="g", revision=3))
    sent, refused = outbox.post(strange, "one", "next"), outbox.post("other", "two", "next")
    outbox.refuse(refused, "it has ended")
    again = GuidanceOutbox(Home(tmp_path), tmp_path)
    assert again.draft(strange) == GuidanceDraft(strange, "half a sen", edits="g", revision=3)
    assert [message.text for message in again.unsent()] == ["one", "two"]
    assert all(re.fullmatch("g-[0-9a-f]{12}", message.id) for message in again.unsent())
    assert [message.refused for message in again.unsent("other")] == ["it has ended"]
    again.remove(sent.id)
    again.store_draft(GuidanceDraft(strange, ""))
    assert again.unsent(strange) == []
    assert again.draft(strange).text == ""


def test_who_shares_a_login_has_words_of_their_own(tmp_path: Path) -> None:
    """Else whoever's console is first sends what another wrote, under its own name."""
    names = ("", "李雷", "Li " + "👍" * 80, "li/../lei")
    boxes = [GuidanceOutbox(Home(tmp_path), tmp_path, name) for name in names]
    for name, box in zip(names, boxes, strict=True):
        box.store_draft(GuidanceDraft("r", f"draft of {name}"))
        box.post("r", f"said by {name}", "next")
    for name, box in zip(names, boxes, strict=True):
        assert box.draft("r").text == f"draft of {name}"
        assert [message.text for message in box.unsent("r")] == [f"said by {name}"]
        assert tmp_path in (box.folder, *box.folder.parents)


def test_a_draft_file_cut_by_a_full_disk_is_no_error(tmp_path: Path) -> None:
    outbox = GuidanceOutbox(Home(tmp_path), tmp_path)
    outbox.store_draft(GuidanceDraft("r", "words"))
    (path,) = (tmp_path / "drafts").iterdir()
    path.write_bytes(b"")
    assert outbox.draft("r").text == ""


def test_no_key_means_two_things_in_one_place() -> None:
    for area in {entry.area for entry in KEYS}:
        keys = [key for entry in KEYS if entry.area == area for key in entry.keys.split(",")]
        assert len(keys) == len(set(keys)), area
    everywhere = {key for entry in KEYS if entry.area == "app" for key in entry.keys.split(",")}
    for area in ("trajectory", "find", "rollouts", "terminals", "files", "queue", "lines"):
        keys = {key for entry in KEYS if entry.area == area for key in entry.keys.split(",")}
        assert not keys & everywhere, area
