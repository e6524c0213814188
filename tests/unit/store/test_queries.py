"""What the journal holds is read back whole, in order, and shows what was erased."""

import re
from collections.abc import Callable

import pytest

from houston_console.transcript import trajectory_reader
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared import context_messages
from houston_shared.errors import HoustonError
from houston_shared.records import FileChange, ObservationBody, TerminalSpan, ToolCall
from houston_shared.store import (
    annotation_queries,
    attention_ranking,
    policy_queries,
    rollout_queries,
    step_queries,
    workspace_queries,
)
from houston_shared.store.event_bodies import StepBookmarked, VerdictGiven
from houston_shared.store.journal_events import ERASED_TEXT, OPEN_END, ReadPlan
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import ActivationRequested
from tests.support.written_home import WrittenHome, sample

LOOK = ToolCall(id="1.0", name="list_dir", arguments={"path": "."})
READ = ToolCall(id="1.1", name="read_file", arguments={"path": "a.txt"})


RESOLVED = {
    "whole id": ("r-abc", "r-abc"),
    "unique beginning": ("r-x", "r-xyz"),
    "an id that begins others": ("r-ab", "r-ab"),
    "unique ending": ("yz", "r-xyz"),
    "an ending that begins another": ("abc", "abc-r"),
}


@pytest.mark.parametrize("case", RESOLVED)
def test_a_rollout_is_found_by_its_id_or_a_unique_part(
    case: str, written: WrittenHome, reader: Reader
) -> None:
    for name in ("r-ab", "r-abc", "r-xyz", "abc-r"):
        written.rollout(name)
    name, expected = RESOLVED[case]
    assert reader.run(rollout_queries.resolve_rollout_id(name)) == expected


def marked(*signals: str) -> ObservationBody:
    reasons = {name: f"why {name}" for name in signals}
    return ObservationBody(tail="", attention=signals, reasons=reasons)


def test_rollouts_that_ask_for_a_person(written: WrittenHome, reader: Reader) -> None:
    written.rollout("busy")
    written.rollout("calm")
    written.rollout("over", state="finished")
    for step in range(1, 9):
        written.step("busy", step, observation=marked(*["error"] * (step in (2, 6, 7))))
        written.step("over", step, observation=marked("error"))
    written.step("busy", 9, observation=marked("no_change", "error"))
    written.step("busy", 10, open=True)
    written.step("calm", 1)
    signals = reader.run(attention_ranking.read_recent_signals())
    assert [(marked.step, marked.signals) for marked in signals["busy"]] == [
        (9, ("no_change", "error")), (7, ("error",)), (6, ("error",)),
    ]  # fmt: skip
    assert list(signals) == ["busy"]
    assert attention_ranking.newest_signals(signals["busy"]) == {
        "no_change": "why no_change",
        "error": "why error",
    }
    assert list(reader.run(attention_ranking.read_recent_signals(1, ("finished",)))) == ["over"]
    assert reader.run(attention_ranking.read_recent_signals(rollout="calm")) == {}


def test_signals_are_listed_without_bodies_and_beside_damaged_ones(
    written: WrittenHome, reader: Reader
) -> None:
    written.rollout("busy")
    written.step("busy", 1, observation=marked("error"))
    ((step,),) = reader.run(attention_ranking.read_recent_signals(reasons=False)).values()
    assert (step.signals, step.reasons) == (("error",), {})
    written.connection.execute("UPDATE events SET body = x'ff' WHERE part = 'observation'")
    ((step,),) = reader.run(attention_ranking.read_recent_signals()).values()
    assert (step.signals, step.reasons) == (("error",), {})


UNKNOWN = {
    "several": ("r", r"3 rollouts begin with 'r': .*r-ab"),
    "several ends": ("-7iz6", r"2 rollouts end with '-7iz6': b-7iz6, a-7iz6"),
    "near": ("r-abd", r"no rollout 'r-abd' .*Near it: .*r-abc"),
    "far": ("q", r"no rollout 'q' in this home\.$"),
    "empty": ("", r"no rollout ''"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_rollout_names_what_is_near(
    case: str, written: WrittenHome, reader: Reader
) -> None:
    for name in ("r-ab", "r-abc", "r-xyz", "a-7iz6", "b-7iz6"):
        written.rollout(name)
    name, sentence = UNKNOWN[case]
    with pytest.raises(HoustonError) as problem:
        reader.run(rollout_queries.resolve_rollout_id(name))
    assert problem.value.next == "houston rollout list"
    assert re.search(sentence, problem.value.cause)


def test_engines_that_workers_wait_for(written: WrittenHome, reader: Reader) -> None:
    activity = "waiting for the engine: 503"
    written.rollout("r1", engine="far", activity=activity)
    written.rollout("r2", engine="far", activity=activity)
    written.rollout("r3", engine="near", activity="sampling")
    written.rollout("r4", engine="gone", activity=activity, state="failed")
    assert reader.run(rollout_queries.list_engines_waited_for()) == [("far", activity, 2)]


def test_a_step_is_read_back_as_it_was_stored(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    body = sample("I look.", calls=(LOOK, READ))
    observation = ObservationBody(tail="[clock]", attention=("error",))
    written.guide("r1", "g1", "Mind the gap.")
    written.guide("r1", "g2", "And the other.")
    written.step("r1", 1, body, ("a.txt", "hello"), observation)
    written.deliver("r1", 1, "g1")
    written.deliver("r1", 1, "g2")
    (step,) = reader.run(step_queries.read_steps("r1"))
    assert (step.sample, step.observation) == (body, observation)
    assert [intent.call for intent in step.intents] == [LOOK, READ]
    assert [result.text for result in step.results] == ["a.txt", "hello"]
    assert [message.text for message in step.guidance] == ["Mind the gap.", "And the other."]
    whole = context_messages.observation_text(step.results, observation.tail, step.guidance)
    assert whole.endswith("<real_user>And the other.</real_user>")


def test_a_body_in_a_blob_reads_like_one_in_its_row(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    long = "x" * 100_000
    written.step("r1", 1, sample(calls=(LOOK,)), (long,), blob=True)
    (step,) = reader.run(step_queries.read_steps("r1"))
    assert step.results[0].text == long


def test_a_missing_blob_is_said(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.step("r1", 1, sample(calls=(LOOK,)), ("long",), blob=True)
    for file in written.home.blobs.rglob("*.zst"):
        file.unlink()
    with pytest.raises(HoustonError, match="cannot be read") as problem:
        reader.run(step_queries.read_steps("r1"))
    assert problem.value.next == "houston verify"


DAMAGED_READS: dict[str, tuple[str, Callable[[], ReadPlan[object]]]] = {
    "what has changed": ("verdict", lambda: trajectory_reader.read_changes("r1", 1)),
    "verdicts": ("verdict", lambda: annotation_queries.read_verdict_history("r1")),
    "an activation": ("activation", lambda: policy_queries.find_activation_request("q")),
    "policies before": ("activation", lambda: policy_queries.find_policies_before_run("run")),
}


@pytest.mark.parametrize("case", DAMAGED_READS)
def test_a_damaged_body_is_named(case: str, written: WrittenHome, reader: Reader) -> None:
    kind, plan = DAMAGED_READS[case]
    written.rollout("r1")
    written.step("r1", 1, sample())
    judged = VerdictGiven(last=1, verdict="mask", by="person:ada")
    written.event(EventKey("r1", 1), "verdict", judged)
    asked = ActivationRequested(by="person:ada", request="q", engine="script:x")
    written.event(EventKey(), "activation", asked)
    reader.run(plan())
    written.connection.execute("UPDATE events SET body = x'c1' WHERE kind = ?", (kind,))
    with pytest.raises(HoustonError, match=rf"\({kind}\) cannot be read") as problem:
        reader.run(plan())
    assert problem.value.next == "houston verify"


def test_erased_bodies_show_as_such(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.guide("r1", "g1", "secret")
    written.step("r1", 1, sample("secret", calls=(LOOK,)), ("secret",))
    written.deliver("r1", 1, "g1")
    for seq in range(1, written.seq + 1):
        written.erase(seq)
    (step,) = reader.run(step_queries.read_steps("r1"))
    assert step.sample.thought == ERASED_TEXT
    assert [result.text for result in step.results] == [ERASED_TEXT]
    assert step.observation is not None
    assert step.observation.tail == ERASED_TEXT
    assert step.guidance[0].text == ERASED_TEXT


def test_attempts_that_were_replaced_are_there_when_asked_for(
    written: WrittenHome, reader: Reader
) -> None:
    written.rollout("r1")
    written.step("r1", 1, sample("first"))
    written.step("r1", 1, sample("second"), attempt=2)
    assert [s.sample.thought for s in reader.run(step_queries.read_steps("r1"))] == ["second"]
    both = reader.run(step_queries.read_steps("r1", attempts=True))
    assert [(s.attempt, s.sample.thought) for s in both] == [(1, "first"), (2, "second")]
    replaced = reader.run(step_queries.read_step("r1", 1, attempt=1))
    assert replaced is not None
    assert replaced.sample.thought == "first"
    assert reader.run(step_queries.read_step("r1", 2)) is None


def test_a_summary_before_a_step_is_no_part_of_it(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.sampled("r1", 1, sample("summary", role="summary"), part="summary.1")
    written.step("r1", 1, sample("policy"))
    (step,) = reader.run(step_queries.read_steps("r1"))
    assert step.sample.thought == "policy"


def test_an_open_step_has_no_observation(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.step("r1", 1, sample(calls=(LOOK, READ)), ("a.txt",), open=True)
    (step,) = reader.run(step_queries.read_steps("r1"))
    assert step.observation is None
    assert (len(step.intents), len(step.results)) == (2, 1)


RANGES = {
    "all": (1, OPEN_END, [1, 2, 3, 4, 5]),
    "from": (4, OPEN_END, [4, 5]),
    "to": (1, 2, [1, 2]),
    "one": (3, 3, [3]),
    "beyond": (9, OPEN_END, []),
}


@pytest.mark.parametrize("case", RANGES)
def test_a_range_of_steps_is_inclusive(case: str, written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.rollout("r2")
    for number in range(1, 6):
        written.step("r1", number)
        written.step("r2", number)
    first, last, steps = RANGES[case]
    assert [row.step for row in reader.run(step_queries.list_step_rows("r1", first, last))] == steps
    assert [row.step for row in reader.run(step_queries.read_steps("r1", first, last))] == steps


def test_steps_that_changed_since_a_sequence(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.step("r1", 1)
    seq = written.seq
    written.step("r1", 2)
    assert reader.run(rollout_queries.newest_seq("r1")) == written.seq
    assert [event.seq for event in reader.run(rollout_queries.events_since(seq))] == [
        seq + 1,
        seq + 2,
    ]
    assert [event.kind for event in reader.run(rollout_queries.newest_events(1))] == ["observation"]


def test_files_come_with_their_diff(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    change = FileChange(path="a.py", kind="changed", added=1, removed=2, diff="@@ -1 +1 @@\n")
    span = TerminalSpan(host="local", terminal="main", start=0, end=40)
    written.step("r1", 1, observation=ObservationBody(tail="", files=(change,), spans=(span,)))
    (row,) = reader.run(workspace_queries.list_file_edits("r1"))
    assert reader.run(workspace_queries.read_file_change(row)) == change
    assert reader.run(workspace_queries.list_file_edits("r1", path="b.py")) == []
    assert [
        (log.terminal, log.end) for log in reader.run(workspace_queries.list_terminal_spans("r1"))
    ] == [("main", 40)]


def test_guidance_keeps_its_order_and_states(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.guide("r1", "g-b", "one")
    written.guide("r1", "g-a", "two", mode="wake", verified=False)
    written.deliver("r1", 7, "g-b")
    first, second = reader.run(annotation_queries.list_guidance("r1"))
    assert (first.text, first.state, first.step) == ("one", "delivered", 7)
    assert (second.state, second.delivered_at, second.verified) == ("queued", None, False)
    assert reader.run(annotation_queries.find_guidance("g-a")) == second
    for wrong in ("g", "zzz", ""):
        with pytest.raises(HoustonError):
            reader.run(annotation_queries.find_guidance(wrong))


def test_bookmarks_notes_and_presence(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.event(EventKey("r1", 1), "bookmark", StepBookmarked(author="ada", note="look here"))
    written.insert("annotators", name="ada", verified=1, rollout="r1", step=1, last_seen=50)
    assert [mark.note for mark in reader.run(annotation_queries.list_bookmarks("r1"))] == [
        "look here"
    ]
    assert [note.text for note in reader.run(annotation_queries.list_notes("r1"))] == ["look here"]
    assert [who.name for who in reader.run(annotation_queries.list_annotators(50))] == ["ada"]
    assert reader.run(annotation_queries.list_annotators(51)) == []


def test_a_persons_verdict_outranks_the_judges(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    for number, (source, keep) in enumerate([("human", 1), ("judge", 0), ("rule", 0)]):
        key = {"rollout": "r1", "step": 1, "attempt": 1, "source": source}
        written.insert("verdicts", **key, keep=keep, seq=1, at=number)
    verdicts = annotation_queries.effective_verdicts(
        reader.run(annotation_queries.list_verdicts("r1"))
    )
    assert (verdicts[1, 1].source, verdicts[1, 1].keep) == ("human", 1)


def test_states_tasks_and_drifts_are_counted(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1", best_score=40.0)
    written.rollout("r2", state="finished", best_score=60.0)
    written.step("r1", 1, sample(drift="forked"))
    written.step("r1", 2)
    assert reader.run(rollout_queries.count_drifts("r1")) == {"forked": 1, "clean": 1}
    (task,) = reader.run(rollout_queries.list_tasks())
    assert (task.rollouts, task.running, task.best_score) == (2, 1, 60.0)
    assert reader.run(rollout_queries.read_task_record(task)).instructions == "Count."
    assert [row.id for row in reader.run(rollout_queries.list_rollouts(state="finished"))] == ["r2"]
    assert (
        reader.run(
            rollout_queries.read_rollout_spec(reader.run(rollout_queries.find_rollout("r1")))
        ).rollout
        == "r1"
    )
