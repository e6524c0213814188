"""Reading commands: JSON that other programs rely on, text that cannot harm, clear errors."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_console.commands import journal_commands
from houston_daemon.commands import task_commands
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import ContextHead, FileChange, ForkBody, ObservationBody, ToolCall
from houston_shared.store.event_bodies import (
    RefusedAttempt,
    ReviewCostStored,
    RolloutClaimed,
    StepBookmarked,
    StoredState,
    VerdictGiven,
)
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader
from houston_shared.task import load_task
from tests.support.written_home import WrittenHome, sample
from tests.unit.commands.conftest import Houston

LOOK = ToolCall(id="1.0", name="list_dir", arguments={"path": "."})
HOSTILE = "or \x1b[31mred\x1b]0;title\x07 \x9b2J \u202eevil\u2066 \u200b\r\b\x7f \U000e0041"
"""C0, DEL, C1, bidirectional controls, zero width, tags."""
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def history(written: WrittenHome, text: str = "a.txt") -> None:
    """A rollout with a bit of everything, all of it holding `text`."""
    written.rollout("words-aaaa", best_score=40.0, activity=text[:40])
    head = ContextHead(
        system=text,
        task=text,
        tools=({"function": {"name": "look", "description": text}},),
        rendered="",
        token_ids=None,
        dialect="",
        tokenizer="",
    )
    written.head("words-aaaa", head)
    written.guide("words-aaaa", "g-1", text)
    call = ToolCall(id="1.0", name=text, arguments={text: text})
    change = FileChange(path=text, kind="added", added=3, removed=1, diff=text, note=text)
    observation = ObservationBody(tail=text, files=(change,), attention=(text,))
    written.step("words-aaaa", 1, sample(text, calls=(call,), policy=text), (text,), observation)
    written.deliver("words-aaaa", 1, "g-1")
    written.guide("words-aaaa", "g-2", text, author=text, verified=False)
    written.fork("words-aaaa", 2, ForkBody(k=1, first_kept_step=2, summary=text))
    written.step("words-aaaa", 2, sample(text, malformed=text))
    written.event(EventKey("words-aaaa", 1), "bookmark", StepBookmarked(author=text, note=text))
    paused = StoredState(state="paused", by=f"person:{text}", reason=text)
    written.event(EventKey("words-aaaa"), "state", paused)


def people(written: WrittenHome, text: str) -> None:
    """What people did to that rollout besides speaking."""
    written.event(EventKey("words-aaaa"), "claim", RolloutClaimed(by=text, note=text))
    judged = VerdictGiven(last=2, verdict="mask", by=text, reason=text)
    written.event(EventKey("words-aaaa", 1), "verdict", judged)
    written.look("words-aaaa", text)


READING = {
    "task list": ("task", "list"),
    "rollout list": ("rollout", "list"),
    "rollout show": ("rollout", "show", "words"),
    "guidance": ("guidance", "words"),
    "steps": ("steps", "words"),
    "steps in full": ("steps", "words", "--full"),
    "context": ("context", "words", "2"),
    "search": ("search", "title OR"),
    "search by pattern": ("search", "--regex", "t[ia]tle"),
    "verdict": ("verdict", "words"),
    "bookmark": ("bookmark", "words"),
    "since": ("since", "words"),
    "rollout people": ("rollout", "people"),
    "rollout compare": ("rollout", "compare", "words", "words"),
    "tail": ("tail",),
    "tail of one": ("tail", "words", "-n", "3"),
    "log": ("log",),
    "audit": ("log", "--audit"),
}
STATES = ("rollout list", "rollout show")
"""Commands that show what a daemon would change: when it was so, is said."""


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("case", READING)
def test_hostile_text_never_reaches_a_terminal(
    case: str, json: bool, written: WrittenHome, houston: Houston
) -> None:
    history(written, HOSTILE)
    people(written, HOSTILE)
    output = houston(*READING[case], *(["--json"] if json else []))
    assert output.code == 0
    assert output.out
    assert not CONTROLS.search(output.out.replace("\n", ""))
    assert not CONTROLS.search(output.err.replace("\n", ""))
    if json and case not in ("task list", "rollout list", "log"):
        assert HOSTILE in str(output.lines) or "title" in str(output.lines)


@pytest.mark.parametrize("case", READING)
def test_reading_works_while_the_daemon_is_down(
    case: str, written: WrittenHome, houston: Houston
) -> None:
    history(written, "title or")
    people(written, "ben")
    output = houston(*READING[case])
    assert output.code == 0
    assert "daemon" not in output.out.replace("daemon started", "")
    warned = output.err.startswith("No daemon runs: this is the state of ")
    assert warned == (case in STATES), "a state may have changed, what was done has not"
    noted = "Your visit was not recorded" in output.err
    assert noted == (case == "since")
    assert warned or noted or "daemon" not in output.err


KEYS = {
    "guidance": {"id", "rollout", "author", "text", "mode", "state", "step", "queued_at",
                 "delivered_at"},
    "steps": {"rollout", "step", "thought", "calls", "observation", "guidance", "files",
              "engine", "verdict", "process_reward", "attention", "attention_reasons", "policy",
              "usage", "at", "active_seconds"},
    "context": {"messages", "rendered", "token_ids", "drift", "parent"},
}  # fmt: skip
"""Formats that other programs rely on: docs/design.md#commands-and-formats."""


@pytest.mark.parametrize("case", KEYS)
def test_the_json_has_exactly_these_keys(case: str, written: WrittenHome, houston: Houston) -> None:
    history(written)
    line = houston(*READING[case], "--json").lines[0]
    assert set(line) == KEYS[case]


def test_a_step_as_json(written: WrittenHome, houston: Houston) -> None:
    history(written)
    step, second = houston("steps", "words", "--json").lines
    assert step["calls"] == [{"id": "1.0", "name": "a.txt", "arguments": {"a.txt": "a.txt"}}]
    assert step["observation"] == "a.txt\na.txt\n<real_user>a.txt</real_user>"
    assert step["guidance"] == [{"id": "g-1", "author": "ada", "text": "a.txt"}]
    assert step["files"] == [{"path": "a.txt", "added": 3, "removed": 1}]
    assert (step["verdict"], step["attention"]) == (None, ["a.txt"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", step["at"])
    assert (second["step"], second["active_seconds"]) == (2, 3.0)


def test_what_asks_for_a_person_is_shown_with_its_reason(
    written: WrittenHome, houston: Houston
) -> None:
    written.rollout("words-aaaa")
    body = ObservationBody(
        tail="", attention=("error_streak",), reasons={"error_streak": "3 steps went wrong"}
    )
    written.step("words-aaaa", 1, observation=body)
    assert "attention: error_streak (3 steps went wrong)" in houston("steps", "words").out
    assert "error streak: 3 steps went wrong" in houston("rollout", "list").out
    for words in (("rollout", "list"), ("steps", "words")):
        (line,) = houston(*words, "--json").lines
        assert line["attention"] == ["error_streak"], words
        assert line["attention_reasons"] == {"error_streak": "3 steps went wrong"}, words


def test_packaged_tasks_are_listed_and_can_be_copied(houston: Houston, tmp_path: Path) -> None:
    listed = houston("task", "list", "--packaged", "--json").lines
    assert {task["task"] for task in listed} == set(task_commands.template_names())
    assert "design-loss" in houston("task", "list", "--packaged").out
    for task in listed:
        name = f"my-{task['task']}"
        copy = load_task(task_commands.write_task_from_template(name, tmp_path, task["task"]))
        assert (copy.task.name, copy.task.domain) == (name, task["domain"])


def test_guidance_as_json(written: WrittenHome, houston: Houston) -> None:
    history(written)
    heard, waiting = houston("guidance", "words", "--json").lines
    assert (heard["state"], heard["step"], heard["mode"]) == ("delivered", 1, "next")
    assert (waiting["state"], waiting["step"], waiting["delivered_at"]) == ("queued", None, None)
    assert waiting["verified"] is False


def test_a_verdict_shows_in_its_step(written: WrittenHome, houston: Houston) -> None:
    history(written)
    for source, keep in (("judge", 1), ("human", 0)):
        key = {"rollout": "words-aaaa", "step": 1, "attempt": 1, "source": source}
        written.insert("verdicts", **key, keep=keep, seq=1, at=1)
    first, second = houston("steps", "words", "--json").lines
    assert (first["verdict"], second["verdict"]) == ("mask", None)


RANGES = {
    "all": ((), [1, 2, 3, 4, 5]),
    "from": (("--from", "4"), [4, 5]),
    "to": (("--to", "2"), [1, 2]),
    "between": (("--from", "2", "--to", "3"), [2, 3]),
    "newest": (("-n", "2"), [4, 5]),
    "newest of a range": (("-n", "2", "--to", "3"), [2, 3]),
    "beyond": (("--from", "9"), []),
}


@pytest.mark.parametrize("case", RANGES)
def test_a_range_of_steps(case: str, written: WrittenHome, houston: Houston) -> None:
    written.rollout("r1")
    for number in range(1, 6):
        written.step("r1", number)
    written.step("r1", 6, sample(calls=(LOOK,)), open=True)
    flags, numbers = RANGES[case]
    assert [line["step"] for line in houston("steps", "r1", *flags, "--json").lines] == numbers


@pytest.mark.parametrize("json", [(), ("--json",)])
@pytest.mark.parametrize(
    "words",
    [
        ("steps", "{}@99"),
        ("steps", "{}@98-99"),
        ("steps", "{}@99", "-f"),
        ("files", "{}@99"),
        ("files", "{}@99", "--searches"),
        ("context", "{}@99"),
        ("verdict", "{}@99"),
        ("rollout", "restore", "{}@99", "--out", "there"),
    ],
)
def test_a_step_that_is_not_there_is_said(
    words: tuple[str, ...], json: tuple[str, ...], written: WrittenHome, houston: Houston
) -> None:
    rollout = written.rollout("r1", state="finished")
    written.step(rollout, 1)
    output = houston(*(word.format(rollout) for word in words), *json)
    assert (output.code, output.out) == (66, "")
    assert "99" in output.err
    assert "next: houston steps" in output.err


def test_more_steps_than_one_read_takes(written: WrittenHome, houston: Houston) -> None:
    written.rollout("r1")
    for number in range(1, 121):
        written.step("r1", number)
    lines = houston("steps", "r1", "--json").lines
    assert [line["step"] for line in lines] == list(range(1, 121))


def test_a_rollout_as_json(written: WrittenHome, houston: Houston) -> None:
    history(written)
    (listed,) = houston("rollout", "list", "--json").lines
    (shown,) = houston("rollout", "show", "words", "--json").lines
    assert listed["state"] == shown["state"] == "paused"
    assert listed.items() <= shown.items()
    assert shown["guidance"] == {"queued": 1, "delivered": 1}
    assert shown["drift"] == {"clean": 2}
    assert shown["usage"]["samples"] == 2
    assert shown["usage"].keys() == {
        "samples", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens",
        "cost", "reckoned",
    }  # fmt: skip


def test_what_a_rollout_cost_is_shown_and_listed(written: WrittenHome, houston: Houston) -> None:
    for name in ("words-aaaa", "free-bbbb"):
        written.rollout(name)
    for step, cost in enumerate((0.25, 1.0), start=1):
        body = sample("x", prompt_tokens=9, completion_tokens=4, cost=cost)
        written.step("words-aaaa", step, body)
    read = ReviewCostStored(
        reviewer="judge:e", request="q", requests=1, prompt_tokens=9, sampled_tokens=4, cost=0.0321
    )
    written.event(EventKey("words-aaaa"), "review-cost", read)
    written.step("free-bbbb", 1, sample("x"))
    lines = {line["rollout"]: line for line in houston("rollout", "list", "--json").lines}
    assert (lines["words-aaaa"]["cost"], lines["words-aaaa"]["review_cost"]) == (1.25, 0.0321)
    assert (lines["free-bbbb"]["cost"], lines["free-bbbb"]["review_cost"]) == (None, None)
    (shown,) = houston("rollout", "show", "words", "--json").lines
    assert (shown["cost"], shown["currency"]) == (1.25, "USD")
    assert "1.25 USD; judges and critics 0.0321 USD" in houston("rollout", "show", "words").out
    assert "cost" not in houston("rollout", "show", "free").out
    (step, _) = houston("steps", "words", "--json").lines
    assert step["usage"]["cost"] == 0.25


def test_a_rollout_without_a_sandbox_is_marked_in_the_list(
    written: WrittenHome, houston: Houston
) -> None:
    written.rollout("r1", sandbox="none")
    assert "[no sandbox]" in houston("rollout", "list").out
    assert "[no sandbox]" in houston("rollout", "show", "r1").out


LONG = "the engine answered: " + "no " * 100


def test_a_long_reason_is_cut_where_it_is_listed_and_whole_where_it_is_shown(
    written: WrittenHome, houston: Houston
) -> None:
    written.rollout("r1", state="failed", reason=LONG, sandbox="none")
    (line,) = houston("rollout", "list").out.splitlines()[1:]
    assert line.endswith("…) [no sandbox]")
    assert "failed (the engine answered: no no " in line
    assert len(line) < 160
    assert LONG.strip() in houston("rollout", "show", "r1").out
    assert houston("rollout", "list", "--json").lines[0]["reason"] == LONG


def test_a_rollout_says_where_its_workspace_lies(written: WrittenHome, houston: Houston) -> None:
    history(written)
    assert houston("rollout", "show", "words", "--json").lines[0]["workspace"] is None
    written.rollout("r9", host_root="/srv/agents")
    folder = "/srv/agents/rollouts/r9/workspace"
    assert houston("rollout", "show", "r9", "--json").lines[0]["workspace"] == folder
    assert f"workspace {folder}" in houston("rollout", "show", "r9").out


def test_a_rollout_says_which_seed_chose_its_world(written: WrittenHome, houston: Houston) -> None:
    written.rollout("r9", seed=7)
    assert "  seed      7\n" in houston("rollout", "show", "r9").out
    assert houston("rollout", "show", "r9", "--json").lines[0]["seed"] == 7


def test_following_what_has_ended_ends(written: WrittenHome, houston: Houston) -> None:
    written.rollout("r1", state="finished")
    written.step("r1", 1)
    for words in (("tail", "r1", "-f"), ("steps", "r1", "-f")):
        output = houston(*words)
        assert (output.code, output.err) == (0, "r1 has ended.\n")
        assert output.out == houston(*words[:2]).out != ""


def test_the_log_as_text_begins_with_the_newest_and_says_so(
    written: WrittenHome, houston: Houston
) -> None:
    written.rollout("r1")
    assert houston("log").err == ""
    for step in range(1, 40):
        written.step("r1", step)
    output = houston("log")
    assert "newest 50" in output.err
    assert [line.split()[0] for line in output.out.splitlines()] == [
        str(seq) for seq in range(written.seq - 49, written.seq + 1)
    ]
    assert houston("log", "-n", "60").err == ""
    assert len(houston("log", "-n", "60").out.splitlines()) == 60


def test_lists_are_narrowed(written: WrittenHome, houston: Houston) -> None:
    written.rollout("r1", state="finished")
    written.rollout("r2", task="other")
    finished = houston("rollout", "list", "--state", "finished", "--json").lines
    other = houston("rollout", "list", "--task", "other", "--json").lines
    assert [[line["rollout"] for line in lines] for lines in (finished, other)] == [["r1"], ["r2"]]
    assert houston("rollout", "list", "--state", "wrong").code == 2


def test_by_task_a_suite_is_one_table_and_what_ended_is_a_line(
    written: WrittenHome, houston: Houston
) -> None:
    for number in range(60):
        score = {"best_score": 100.0 * (number % 2)}
        task = f"word-worlds-1-test-{number}"
        written.rollout(f"w-{number:02}", task, state="finished", **score)
        written.rollout(f"v-{number:02}", task, state="finished", **score)
    written.rollout("w-60", "word-worlds-1-test-60")
    written.rollout("one-aaaa", "alone", state="finished", best_score=7.0)
    written.rollout("two-aaaa", "other", state="finished")
    written.rollout("two-bbbb", "other", state="finished")
    lines = houston("rollout", "list", "--by-task").out.splitlines()
    assert lines[0] == "word-worlds-1-test-* (61 tasks)"
    assert lines[1].split()[:2] == ["rollout", "task"] and lines[2].startswith("w-60")
    folded = "120 rollouts of 60 tasks have ended and need nobody: best score 100, mean 50"
    assert lines[3] == folded
    text = "\n".join(lines)
    assert "other\n2 rollouts have ended and need nobody" in text
    assert "one-aaaa" in text, "a single one needs no fold"
    finished = houston("rollout", "list", "--by-task", "--state", "finished").out
    assert "w-07" in finished and "two-bbbb" in finished and "need nobody" not in finished
    assert len(houston("rollout", "list", "--by-task", "--json").lines) == 124


def test_long_observations_are_cut_and_say_so_unless_full(
    written: WrittenHome, houston: Houston
) -> None:
    written.rollout("r1")
    written.step("r1", 1, sample(calls=(LOOK,)), ("\n".join(f"line {n}" for n in range(100)),))
    short, full = houston("steps", "r1").out, houston("steps", "r1", "--full").out
    assert "line 99" not in short
    assert "more lines (--full)" in short
    assert "line 99" in full


def test_a_first_prompt_is_no_fork(written: WrittenHome, houston: Houston) -> None:
    written.rollout("words-aaaa")
    written.step("words-aaaa", 1, sample(calls=(LOOK,), drift="forked"))
    for command in ("steps words", "rollout show words", "context words 1"):
        output = houston(*command.split())
        assert "new context" in output.out + output.err, command
        assert "forked" not in output.out + output.err, command
    assert houston("rollout", "show", "words", "--json").lines[0]["drift"] == {"forked": 1}


def test_the_context_goes_to_stdout_and_what_it_is_to_stderr(
    written: WrittenHome, houston: Houston
) -> None:
    history(written)
    output = houston("context", "words", "2")
    assert output.out.startswith("[system]\na.txt\n")
    assert output.out.endswith('[tools]\n{"function":{"name":"look","description":"a.txt"}}\n')
    assert "step 2: clean, without token ids" in output.err
    assert houston("context", "words", "2", "--tokens").out == ""


def test_the_audit_says_who_did_what(written: WrittenHome, houston: Houston) -> None:
    history(written)
    finished = StoredState(state="finished", by="worker")
    written.event(EventKey("words-aaaa"), "state", finished)
    deeds = houston("log", "--audit", "--json").lines
    assert [(line["who"], line["did"]) for line in deeds] == [
        ("ada", "spec"),
        ("ada", "guidance"),
        ("a.txt", "guidance"),
        ("a.txt", "bookmark"),
        ("a.txt", "state"),
    ]
    assert [line["verified"] for line in deeds] == [True, True, False, True, True]
    last = houston("log", "--audit", "-n", "1", "--json").lines
    assert last == deeds[-1:]
    assert "a.txt (unverified) guidance" in houston("log", "--audit").out


@pytest.mark.parametrize("rollout", ["", "words-aaaa", "words-bbbb"])
def test_the_audit_is_read_by_the_index_of_the_few_and_has_all(
    rollout: str, written: WrittenHome
) -> None:
    """It walked over every event of the home."""
    history(written)
    people(written, "ada")
    written.rollout("words-bbbb")
    for about in ("words-aaaa", "", "words-bbbb") * 200:
        refused = RefusedAttempt(by="eve", what="pause it", uid=7, about=about)
        written.event(EventKey(), "refused", refused)
    marks = ", ".join(f"'{kind}'" for kind in journal_commands.AUDIT_KINDS)
    within = f"AND (rollout = '{rollout}' OR kind = 'refused')" if rollout else ""
    condition = f"kind IN ({marks}) {within} ORDER BY seq"
    with Reader(written.home) as reader:
        pages, after = [], 0
        while page := reader.run(journal_commands._read_audit_page(after, rollout)):
            pages += page
            after = page[-1].event.seq
        assert pages == reader.run(journal_commands.read_entries(condition, ()))
        assert len(pages) > 600
        asked = next(journal_commands._read_audit_page(0, rollout))
        assert isinstance(asked, RunSql)
        plan = reader.run(_explain(asked))
    assert "events_aside" in plan
    assert "SCAN events" not in plan


def _explain(asked: RunSql) -> ReadPlan[str]:
    rows = yield RunSql(f"EXPLAIN QUERY PLAN {asked.sql}", asked.parameters)
    return "; ".join(row[-1] for row in rows)


def test_the_log_has_every_event_once(written: WrittenHome, houston: Houston) -> None:
    for number in range(1, 4):
        written.rollout(f"r{number}")
        for step in range(1, 90):
            written.step(f"r{number}", step)
    lines = houston("log", "--json").lines
    assert [line["seq"] for line in lines] == list(range(1, written.seq + 1))
    of_one = houston("log", "--rollout", "r2", "--json").lines
    assert {line["rollout"] for line in of_one} == {"r2"}
    assert len(of_one) == 1 + 2 * 89
    assert [x["seq"] for x in houston("log", "-n", "3", "--json").lines] == [
        written.seq - 2,
        written.seq - 1,
        written.seq,
    ]


def test_tail_shows_the_last_events_of_the_kinds_asked_for(
    written: WrittenHome, houston: Houston
) -> None:
    written.rollout("r1")
    written.rollout("r2")
    for step in range(1, 9):
        written.step("r1", step)
        written.step("r2", step)
    lines = houston("tail", "r1", "-n", "2", "--kind", "sample", "--json").lines
    assert [(x["rollout"], x["step"], x["kind"]) for x in lines] == [
        ("r1", 7, "sample"),
        ("r1", 8, "sample"),
    ]
    assert len(houston("tail").out.splitlines()) == 20
    assert houston("tail", "-n", "0").out == ""


def test_erased_text_shows_as_such(written: WrittenHome, houston: Houston) -> None:
    history(written, "secret")
    for seq in range(2, written.seq + 1):
        kind = written.connection.execute(
            "SELECT kind FROM events WHERE seq = ?", (seq,)
        ).fetchone()[0]
        if kind != "spec":
            written.erase(seq)
    for words in (("steps", "words"), ("tail",), ("guidance", "words"), ("context", "words", "2")):
        output = houston(*words)
        assert output.code == 0
        assert "erased" in output.out
    assert "secret" not in houston("tail", "--json").out


def nothing(written: WrittenHome) -> None: ...


def a_rollout(written: WrittenHome) -> None:
    written.rollout("words-aaaa")
    written.rollout("words-bbbb")


def one_message(written: WrittenHome) -> None:
    a_rollout(written)
    written.guide("words-aaaa", "g-1", "hi")


ERRORS: dict[str, tuple[Callable[[WrittenHome], None], tuple[str, ...], int, str]] = {
    "no rollout": (nothing, ("steps", "nobody"), 66, "no rollout 'nobody'"),
    "an ambiguous one": (a_rollout, ("steps", "words"), 2, "2 rollouts begin with 'words'"),
    "a near one": (a_rollout, ("rollout", "show", "words-aaab"), 66, "Near it: words-aaaa"),
    "no step": (a_rollout, ("context", "words-a", "3"), 66, "no step 3"),
    "no pattern": (nothing, ("search", "--regex", "("), 2, "'(' is no regular expression"),
    "search in no rollout": (nothing, ("search", "x", "--rollout", "q"), 66, "no rollout 'q'"),
    "step zero": (a_rollout, ("context", "words-a", "0"), 2, "'0' is not a whole number from 1"),
    "steer nobody": (nothing, ("rollout", "pause", "nobody"), 66, "no rollout 'nobody'"),
    "guide nobody": (nothing, ("guide", "nobody", "hi"), 66, "no rollout 'nobody'"),
    "guide without a daemon": (a_rollout, ("guide", "words-a", "hi"), 69, "No daemon runs"),
    "guide with nothing": (a_rollout, ("guide", "words-a", " "), 2, "no text to say"),
    "list nothing": (nothing, ("rollout", "list"), 0, "No rollout was started in this home."),
    "list no such": (a_rollout, ("rollout", "list", "--task", "t"), 0, "There is no such rollout."),
    "withdraw nothing": (a_rollout, ("guidance", "words-a", "--withdraw", "g"), 66, "no guidance"),
    # What a script gives whose variable was never set: it was taken for nothing given.
    "withdraw a message without an id": (
        one_message,
        ("guidance", "words-a", "--withdraw", ""),
        2,
        "begins with ''",
    ),
    "say a draft without an id": (
        a_rollout,
        ("guidance", "words-a", "--accept", ""),
        2,
        "An empty text names no draft.",
    ),
    "turn a draft down without an id": (
        a_rollout,
        ("guidance", "words-a", "--reject", ""),
        2,
        "An empty text names no draft.",
    ),
    "say a draft without an id in other words": (
        a_rollout,
        ("guide", "words-a", "--draft", "", "hi"),
        2,
        "An empty text names no draft.",
    ),
    "erase in a rollout without a name": (
        a_rollout,
        ("rollout", "erase", "", "--text", "hi", "--yes"),
        2,
        "An empty text names no rollout.",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_says_cause_and_next_command(
    case: str, written: WrittenHome, houston: Houston
) -> None:
    make, words, code, sentence = ERRORS[case]
    make(written)
    output = houston(*words)
    assert (output.code, output.out) == (code, "")
    assert sentence in output.err
    assert code == 2 or "next: houston" in output.err


def test_a_home_that_never_had_a_daemon(houston: Houston) -> None:
    output = houston("rollout", "list")
    assert (output.code, output.out) == (66, "")
    assert "houston daemon start" in output.err
    assert houston("guide", "r", "hi").code == 69


def test_guidance_of_another_rollout_is_not_taken_back(
    written: WrittenHome, houston: Houston
) -> None:
    a_rollout(written)
    written.guide("words-aaaa", "g-1", "hi")
    output = houston("guidance", "words-b", "--withdraw", "g-1")
    assert output.code == 1
    assert "belongs to words-aaaa" in output.err
