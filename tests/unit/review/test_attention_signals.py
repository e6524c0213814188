"""Which steps ask for a look, and in what words: a table of short histories for every signal."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.review.attention_catalog import SIGNALS, AttentionTracker, active_signals
from houston_daemon.review.attention_window import (
    AttentionWindow,
    ObservedStep,
    RemainingBudgets,
    observe_step,
    window_length,
)
from houston_shared.records import FileChange, ObservationBody, StepRecord, ToolCall, ToolResult
from houston_shared.task import AttentionSettings
from tests.support.written_home import sample

CHANGE = (FileChange(path="a.py", kind="changed", added=1, removed=1),)


def call(
    name: str, kind: str = "", text: str = "", ok: bool = True, **fields: Any
) -> dict[str, Any]:
    """A call with the arguments that its fields begin with `_` for."""
    arguments = {key[1:]: value for key, value in fields.items() if key.startswith("_")}
    typed = {key: value for key, value in fields.items() if not key.startswith("_")}
    return {
        "call": ToolCall(id="1.0", name=name, arguments=arguments),
        "kind": kind or name,
        "success": ok,
        "text": text,
        "fields": typed,
    }


def run(command: str, text: str = "", ok: bool = True) -> dict[str, Any]:
    return call("run_command", "command", f"[session main: exit code 0]\n{text}", ok,
                _command=command)  # fmt: skip


def job(command: str = "python train.py", session: str = "main") -> dict[str, Any]:
    """A command that is left running."""
    return call("run_command", "command", running=True, exit_code=None, session_id=session,
                _command=command, _session_id=session, _wait_for_completion=False)  # fmt: skip


def ended(code: int | None, session: str = "main", **fields: Any) -> dict[str, Any]:
    """A look at a session in which nothing runs any more."""
    return call("get_session_output", "command", "…", running=False, exit_code=code,
                session_id=session, _session_id=session, **fields)  # fmt: skip


def killed(session: str = "main") -> dict[str, Any]:
    return call("kill_session_processes", "killed", running=False, session_id=session,
                _session_id=session)  # fmt: skip


def look(path: str = "a.py") -> dict[str, Any]:
    return call("open_file", "file", "1\tx", path=path, _path=path)


def edit(path: str = "a.py", blind: bool = False, change: str = "edited") -> dict[str, Any]:
    return call("edit_file", "file", "1\ty", path=path, change=change, blind=blind, _path=path)


def sleep(seconds: float, running: list[str] | None = None) -> dict[str, Any]:
    return call("sleep", "sleep", "Slept.", asked=seconds, slept=seconds, ended_by="time",
                running=running, _sleep_time=seconds)  # fmt: skip


def score(value: float | None, state: str = "scored", **fields: Any) -> dict[str, Any]:
    return call("eval", "eval", "scored", overall_score=value, state=state, ok=value is not None,
                **fields)  # fmt: skip


def crashed(**fields: Any) -> dict[str, Any]:
    """An evaluation whose evaluator failed."""
    return score(None, "failed", evaluator_failed=True, error="It failed with 1.", **fields)


def finish(ok: bool = True) -> dict[str, Any]:
    return call("finish", "finish", "Finished.", ok, finished=ok)


BAD = run("make", "Error: no rule", ok=False)
THINK = call("think", _thought="hm")


def step(
    number: int,
    *calls: dict[str, Any],
    changed: bool | None = True,
    malformed: str = "",
    reason: str = "stop",
) -> StepRecord:
    """A closed step as the journal has it."""
    results = tuple(ToolResult(**call) for call in calls)
    body = sample(malformed=malformed, calls=tuple(call.call for call in results))
    body = msgspec.structs.replace(body, finish_reason=reason)
    files = CHANGE if changed else ()
    closed = ObservationBody(tail="", files=files, snapshot="" if changed is None else "abc")
    return StepRecord(
        step=number, attempt=1, sample_seq=1, sample=body, intents=(), results=results,
        observation=closed, guidance=(), at="", active_seconds=0.0,
    )  # fmt: skip


Steps = list[tuple[dict[str, Any], ...]]


def signals_of(
    history: Steps, limits: AttentionSettings, changed: bool | None = True, **budgets: Any
) -> dict[str, str]:
    """Signals of the last step of a history in which every step changes files, or none does."""
    records = [step(n, *calls, changed=changed) for n, calls in enumerate(history, 1)]
    return look_at(records, limits, **budgets)


def look_at(records: list[StepRecord], limits: AttentionSettings, **budgets: Any) -> dict[str, str]:
    watch = AttentionTracker(limits, records[:-1])
    last = records[-1]
    assert last.observation is not None
    now = observe_step(last.step, last.sample, last.results, last.observation)
    return watch.step(now, RemainingBudgets(**budgets), last.results)


POLL = [(sleep(600, ["main"]),), (run("tail log", "1"),), (sleep(600, ["main"]),)]
CASES: list[tuple[str, str, Steps, dict[str, Any], str]] = [
    ("error", "a call failed", [(run("ls"), BAD)], {}, "run_command make: [session main"),
    ("error", "of code that printed", [(call("python", text="hello\nTraceback…", ok=False,
     error_type="KeyError", error="'x'", _code="f()"),)], {}, "python f(): KeyError: 'x'"),
    ("error", "a traceback", [(call("solve", text="Traceback (most recent call last):\n  a\nE: b\n",
     ok=False),)], {}, "solve: E: b"),
    ("error", "announced", [(call("read", text="The tool reports an error:\nno file", ok=False),)],
     {}, "read: The tool reports an error: no file"),
    ("error", "no word", [(call("read", ok=False),)], {}, "read: "),
    ("error", "all went well", [(run("ls"),)], {}, ""),
    ("error", "it was in the step before", [(BAD,), (run("ls"),)], {}, ""),
    ("forged_tag", "one", [({**run("cat x"), "forged_tags": 1},)], {}, "a look-alike of a person"),
    ("forged_tag", "several", [({**run("cat x"), "forged_tags": 3},)], {}, "3 look-alikes"),
    ("forged_tag", "none", [(run("cat x"),)], {}, ""),
    ("error_streak", "three in a row", [(BAD,)] * 3, {}, "in 3 steps in a row; now run_command"),
    ("error_streak", "it goes on", [(BAD,)] * 5, {}, "in 5 steps in a row"),
    ("error_streak", "a hundred", [(BAD,)] * 100, {}, "in 100 steps in a row"),
    ("error_streak", "two", [(BAD,)] * 2, {}, ""),
    ("error_streak", "two are enough", [(BAD,)] * 2, {"error_streak": 2}, "2 steps in a row"),
    ("error_streak", "broken by a success", [(BAD,), (BAD,), (run("ls"),), (BAD,)], {}, ""),
    ("error_streak", "turned off", [(BAD,)] * 9, {"error_streak": 0}, ""),
    ("job_failed", "an exit code", [(job(),), (look(),), (ended(3),)], {},
     "python train.py (seen to run in step 1, session main) ended with exit code 3"),
    ("job_failed", "in a session of its own", [(job(session="gpu"),), (ended(1, "gpu"),)], {},
     "session gpu) ended with exit code 1"),
    ("job_failed", "no memory was left", [(job(),), (sleep(9, ["main"]),), (ended(137),)], {},
     "ended with exit code 137"),
    ("job_failed", "begun long ago", [(job(),), *[(sleep(9, ["main"]),)] * 90, (ended(1),)], {},
     "seen to run in step 1,"),
    ("job_failed", "a sleep told of its end before", [(job(),), (sleep(9, []),), (ended(2),)], {},
     "exit code 2"),
    ("job_failed", "it died with its session", [(job(),), (ended(None, end="the host restarted"),)],
     {}, "session main): the host restarted"),
    ("job_failed", "two of them", [(job(session="a"),), (job(session="b"),),
     (ended(1, "a"), ended(2, "b"))], {}, "code 1; python train.py (seen to run in step 2"),
    ("job_failed", "with &, as its log shows", [(run("python t.py > t.log 2>&1 &"),),
     (run("tail t.log", "Traceback (most recent call last):\n  x\nValueError: no"),)], {},
     "python t.py > t.log 2>&1 & (step 1): ValueError: no"),
    ("job_failed", "with &, as the shell says", [(run("python t.py &"),),
     (run("ls", "a\n[1]+  Exit 1                  python t.py"),)], {}, "(step 1): [1]+ Exit 1"),
    ("job_failed", "with &, and nothing is wrong", [(run("python t.py > t.log &"),),
     (run("tail t.log", "epoch 3"),)], {}, ""),
    ("job_failed", "it ended well", [(job(),), (ended(0),)], {}, ""),
    ("job_failed", "it runs still", [(job(),), (sleep(9, ["main"]),)], {}, ""),
    ("job_failed", "the agent killed it", [(job(),), (killed(),), (ended(137),)], {}, ""),
    ("job_failed", "the agent had it killed", [(job("sleep 99; python train.py"),),
     (run("pkill -f train.py"),), (ended(143),)], {}, ""),
    ("job_failed", "an exit code that is an answer", [(job("grep -r x ."),), (ended(1),)], {}, ""),
    ("job_failed", "a test that failed", [(job("pytest -q"),), (ended(1),)], {}, ""),
    ("job_failed", "tests that could not run", [(job("pytest -q"),), (ended(4),)], {}, "code 4"),
    ("job_failed", "it was told before", [(job(),), (ended(3),), (ended(3),)], {}, ""),
    ("job_failed", "a command that was waited for", [(BAD,)], {}, ""),
    ("job_failed", "another runs there since", [(job(),), (sleep(9, []),), (job("make"),),
     (ended(0),)], {}, ""),
    ("repeated_action", "three in a row", [(run("ls"),)] * 3, {},
     "3 times in a row, with the same outcome: run_command ls"),
    ("repeated_action", "a hundred in a row", [(run("ls"),)] * 100, {},
     "100 times in a row, with the same outcome: run_command ls"),
    ("repeated_action", "a hundred, sleeping between", [(run("ls"),), (sleep(9, ["main"]),)] * 100
     + [(run("ls"),)], {}, "101 times in a row, with the same outcome"),
    ("repeated_action", "a hundred, seen to move at first",
     [(run("x", "first"),)] + [(run("x", "then"),)] * 99, {}, "100 times in a row: run_command x"),
    ("repeated_action", "begun anew", [(run("ls"),)] * 50 + [(run("a"),)] + [(run("ls"),)] * 30, {},
     "30 times in a row"),
    ("repeated_action", "a hundred in turn", [(run("a"),), (run("b"),)] * 100, {},
     "100 times in turn with run_command a, with the same outcome: run_command b"),
    ("repeated_action", "two in a row", [(run("ls"),)] * 2, {}, ""),
    ("repeated_action", "other arguments", [(run("ls"),), (run("ls a"),), (run("ls b"),)], {}, ""),
    ("repeated_action", "other outcomes", [(run("x", str(n)),) for n in range(3)], {},
     "3 times in a row: run_command x"),
    ("repeated_action", "in turn", [(run("a"),), (run("b"),)] * 2 + [(run("a"),)], {},
     "3 times in turn with run_command b"),
    ("repeated_action", "not in turn yet", [(run("a"),), (run("b"),)] * 2, {}, ""),
    ("repeated_action", "in turn with different ones",
     [(run("a"),), (run("b"),), (run("a"),), (run("c"),), (run("a"),)], {}, ""),
    ("repeated_action", "sleeps and sees it move",
     [*POLL, (run("tail log", "2"),), (sleep(600, ["main"]),), (run("tail log", "3"),)], {}, ""),
    ("repeated_action", "sleeps and sees it stand",
     [*POLL, (run("tail log", "1"),), (sleep(600, ["main"]),), (run("tail log", "1"),)], {},
     "3 times in a row, with the same outcome: run_command tail log"),
    ("repeated_action", "only sleeps", [(sleep(60, ["main"]),)] * 9, {}, ""),
    ("repeated_action", "several calls", [(run("a"), run("b"))] * 3, {}, "run_command a; run_com"),
    ("repeated_action", "turned off", [(run("ls"),)] * 9, {"repeated_actions": 0}, ""),
    ("blind_edit", "looked at in the step before", [(look(),), (edit(),)], {}, ""),
    ("blind_edit", "looked at in the same step", [(look(), edit())], {}, ""),
    ("blind_edit", "changed behind its back", [(look(),), (edit(blind=True),)], {},
     "a.py was changed and not shown since it last changed"),
    ("blind_edit", "printed by a command", [(run("cat src/a.py"),), (edit(blind=True),)], {}, ""),
    ("blind_edit", "made of a document and shown",
     [(call("parse_pdf", "parsed", save_path="a.py"),), (edit(),)], {}, ""),
    ("blind_edit", "a package's own list", [(call("edit_file", "file", change=["a.py"]),)], {}, ""),
    ("blind_edit", "a new file", [(edit(change="created"),)], {}, ""),
    ("blind_edit", "a file written over", [(edit(blind=True, change="replaced"),)], {}, "a.py"),
    ("blind_edit", "another was looked at", [(look("b.py"),), (edit(),)], {},
     "a.py was changed and not looked at in the 5 steps before"),
    ("blind_edit", "long ago", [(look(),), *[(run("x"),)] * 5, (edit(),)], {}, "5 steps before"),
    ("blind_edit", "seen is enough", [(look(),), *[(run("x"),)] * 5, (edit(),)],
     {"blind_edit_steps": 0}, ""),
    ("blind_edit", "APOLLO's step before", [(look(),), (run("x"),), (edit(),)],
     {"blind_edit_steps": 1}, "not looked at in the step before"),
    ("blind_edit", "a thought is no step", [(look(),), (THINK,), (edit(),)],
     {"blind_edit_steps": 1}, ""),
    ("blind_edit", "its own edit showed it", [(look(),), (edit(),), (edit(),)],
     {"blind_edit_steps": 1}, ""),
    ("blind_edit", "looked at on another host",
     [({**look(), "call": ToolCall(id="1", name="open_file", arguments={"host": "far"})},),
      (edit(),)],
     {}, "not looked at"),
    ("blind_edit", "a quote is open", [(run("cat 'a.py"),), (edit(),)], {}, "a.py was changed"),
    ("long_sleep", "half an hour", [(sleep(1800, ["main"]),)], {}, "asked to sleep for 30 min"),
    ("long_sleep", "hours", [(sleep(7200, ["main"]),)], {}, "asked to sleep for 2 h"),
    ("long_sleep", "a minute", [(sleep(60, ["main"]),)], {}, ""),
    ("long_sleep", "turned off", [(sleep(7200),)], {"long_sleep_seconds": 0}, ""),
    ("idle_sleep", "nothing runs", [(sleep(60, []),)], {}, "to sleep for 60 s while nothing ran"),
    ("idle_sleep", "something runs", [(sleep(600, ["main"]),)], {}, ""),
    ("idle_sleep", "not known", [(sleep(600),)], {}, ""),
    ("idle_sleep", "short", [(sleep(5, []),)], {}, ""),
    ("idle_sleep", "a job apart", [(run("nohup train.sh &"),), (sleep(600, []),)], {}, ""),
    ("idle_sleep", "no job apart", [(run("a && b 2>&1"),), (sleep(600, []),)], {}, "10 min while"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "steps", "limits", "reason"), CASES)
def test_signals_of_what_was_done(
    name: str, case: str, steps: Steps, limits: dict[str, Any], reason: str
) -> None:
    shown = signals_of(steps, AttentionSettings(**limits)).get(name, "")
    assert reason in shown, case
    assert bool(reason) == bool(shown), case


UNCHANGED: list[tuple[str, str, Steps, dict[str, Any], bool | None, str]] = [
    ("no_change", "long", [(run(str(n)),) for n in range(40)], {}, False, "the last 40 steps"),
    ("no_change", "nearly", [(run(str(n)),) for n in range(39)], {}, False, ""),
    ("no_change", "with changes", [(run(str(n)),) for n in range(40)], {}, True, ""),
    ("no_change", "nobody can tell", [(run(str(n)),) for n in range(40)], {}, None, ""),
    ("no_change", "sooner", [(run("x"),)] * 2, {"unchanged_steps": 2}, False, "the last 2 steps"),
    ("no_change", "turned off", [(run("x"),)] * 99, {"unchanged_steps": 0}, False, ""),
    ("repeated_evaluation", "at once", [(score(5),), (score(5),)], {}, False, "score of step 1"),
    ("repeated_evaluation", "after looking", [(score(5),), (run("ls"),), (score(5),)], {}, False,
     "no file has changed since the score of step 1"),
    ("repeated_evaluation", "changes between", [(score(5),), (run("x"),), (score(5),)], {}, True,
     ""),
    ("repeated_evaluation", "nobody can tell", [(score(5),), (score(5),)], {}, None, ""),
    ("repeated_evaluation", "the first", [(run("x"),), (score(5),)], {}, False, ""),
    ("repeated_evaluation", "one failed", [(score(None, "failed"),), (score(5),)], {}, False, ""),
    ("repeated_evaluation", "twice in a step", [(score(5), score(5))], {}, False, "more than once"),
    ("repeated_evaluation", "twice at once", [(run("x"), score(5), score(5))], {}, True,
     "nothing done in between"),
    ("repeated_evaluation", "work between", [(score(5), run("x"), score(5))], {}, True, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "steps", "limits", "changed", "reason"), UNCHANGED)
def test_signals_of_what_did_not_change(
    name: str, case: str, steps: Steps, limits: dict[str, Any], changed: bool | None, reason: str
) -> None:
    shown = signals_of(steps, AttentionSettings(**limits), changed).get(name, "")
    assert reason in shown, case
    assert bool(reason) == bool(shown), case


FULL = {"steps": 100, "steps_left": 50, "seconds": 100.0, "seconds_left": 50.0, "evaluations": 3}
BUDGETS: list[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ("score_fell", "below the best", score(20), {"best": 90.0}, {}, "scored 20, best was 90"),
    ("score_fell", "a little", score(87), {"best": 90.0}, {}, ""),
    ("score_fell", "a new best", score(90), {"best": 90.0}, {}, ""),
    ("score_fell", "no score", score(None, "format"), {"best": 90.0}, {}, ""),
    ("score_fell", "turned off", score(0), {"best": 90.0}, {"score_drop": 0}, ""),
    ("evaluator_failed", "it crashed", crashed(detail="Traceback\n  x\nKeyError: 'a'\n"), {}, {},
     "Its last words: KeyError: 'a'"),
    ("evaluator_failed", "it said nothing", crashed(), {}, {}, "scored"),
    ("evaluator_failed", "the form is wrong", score(None, "format"), {}, {}, ""),
    ("evaluator_failed", "interrupted", score(None, "failed", evaluator_failed=False), {}, {}, ""),
    ("evaluator_failed", "scored", score(3), {}, {}, ""),
    ("no_submission", "steps", run("x"), {"steps_left": 9}, {},
     "nothing was submitted, 9 of 100 steps left"),
    ("no_submission", "time", run("x"), {"seconds_left": 9.0}, {}, "9% of active time left"),
    ("no_submission", "plenty", run("x"), {}, {}, ""),
    ("no_submission", "one was", run("x"), {"steps_left": 9, "evaluations_left": 2}, {}, ""),
    ("no_submission", "one is not counted", run("x"), {"steps_left": 9, "best": 0.0}, {}, ""),
    ("no_submission", "nobody scores", run("x"), {"steps_left": 9, "evaluations": 0,
     "evaluations_left": 0}, {}, ""),
    ("no_submission", "it is over", run("x"), {"steps_left": 0, "finished": True}, {}, ""),
    ("no_submission", "turned off", run("x"), {"steps_left": 9}, {"budget_share": 0}, ""),
    ("near_budget", "plenty", run("x"), {}, {}, ""),
    ("near_budget", "steps", run("x"), {"steps_left": 10}, {}, "10 of 100 steps left"),
    ("near_budget", "time", run("x"), {"seconds_left": 9.0}, {}, "9% of active time left"),
    ("near_budget", "submissions", score(5), {"evaluations_left": 1}, {}, "1 of 3 evaluations"),
    ("near_budget", "none is used now", run("x"), {"evaluations_left": 1}, {}, ""),
    ("near_budget", "both", run("x"), {"steps_left": 1, "seconds_left": 1.0}, {}, "; 1% of"),
    ("near_budget", "it is over", run("x"), {"steps_left": 0, "finished": True}, {}, ""),
    ("near_budget", "turned off", run("x"), {"steps_left": 1}, {"budget_share": 0}, ""),
    ("no_gain", "scores", run("x"), {"best": 40.0, "since_gain": 5}, {},
     "no better score than 40 in 5 evaluations"),
    ("no_gain", "too few", run("x"), {"best": 40.0, "since_gain": 4}, {}, ""),
    ("no_gain", "fewer are enough", run("x"), {"best": 4.0, "since_gain": 2},
     {"no_gain_evaluations": 2}, "in 2 evaluations"),
    ("no_gain", "hours", run("x"), {"best": 40.0, "seconds_since_gain": 18_000.0}, {},
     "no better score than 40 for 5 h of active time"),
    ("no_gain", "both", run("x"), {"best": 1.0, "since_gain": 9, "seconds_since_gain": 36_000.0},
     {}, "in 9 evaluations and for 10 h"),
    ("no_gain", "no score yet", run("x"), {"seconds_since_gain": 14_400.0}, {},
     "no score for 4 h"),
    ("no_gain", "not for long", run("x"), {"seconds_since_gain": 14_000.0}, {}, ""),
    ("no_gain", "none is better", run("x"), {"best": 100.0, "since_gain": 9}, {}, ""),
    ("no_gain", "nobody scores", run("x"), {"evaluations": 0, "seconds_since_gain": 1e6}, {}, ""),
    ("no_gain", "it is over", run("x"), {"best": 1.0, "since_gain": 9, "finished": True}, {}, ""),
    ("no_gain", "turned off", run("x"), {"best": 1.0, "since_gain": 9, "seconds_since_gain": 1e6},
     {"no_gain_evaluations": 0, "no_gain_seconds": 0}, ""),
    ("low_finish", "a budget ends it", run("x"), {"best": 20.0, "finished": True}, {},
     "ended by its budget with a best score of 20"),
    ("low_finish", "low", finish(), {"best": 20.0}, {}, "with a best score of 20"),
    ("low_finish", "refused", finish(False), {"best": 20.0}, {}, "asked to finish"),
    ("low_finish", "none", finish(), {}, {}, "asked to finish without a score"),
    ("low_finish", "good", finish(), {"best": 80.0}, {}, ""),
    ("low_finish", "nobody scores", finish(), {"evaluations": 0}, {}, ""),
    ("low_finish", "goes on", run("x"), {"best": 20.0}, {}, ""),
    ("low_finish", "turned off", finish(), {"best": 0.0}, {"low_score": 0}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "action", "budgets", "limits", "reason"), BUDGETS)
def test_signals_of_scores_and_budgets(
    name: str,
    case: str,
    action: dict[str, Any],
    budgets: dict[str, Any],
    limits: dict[str, Any],
    reason: str,
) -> None:
    standing = {**FULL, "evaluations_left": 3, **budgets}
    shown = signals_of([(action,)], AttentionSettings(**limits), **standing).get(name, "")
    assert reason in shown, case
    assert bool(reason) == bool(shown), case


@pytest.mark.parametrize(
    ("name", "reason", "malformed", "expected"),
    [
        ("null_action", "stop", "no call", "no action: no call"),
        ("null_action", "stop", "", ""),
        ("null_action", "interrupted", "no call", ""),
        ("interrupted", "interrupted", "no call", "a person stopped its sample"),
        ("interrupted", "stop", "no call", ""),
    ],
)
def test_signals_of_steps_without_an_action(
    name: str, reason: str, malformed: str, expected: str
) -> None:
    record = step(1, malformed=malformed, reason=reason)
    assert look_at([record], AttentionSettings(), **FULL).get(name, "") == expected


def test_no_action_counts_as_going_wrong() -> None:
    records = [step(1, malformed="x"), step(2, BAD), step(3, malformed="no call")]
    assert "now no action: no call" in look_at(records, AttentionSettings())["error_streak"]


def test_every_signal_has_cases_and_a_sentence() -> None:
    covered = {case[0] for case in (*CASES, *UNCHANGED, *BUDGETS)} | {"null_action", "interrupted"}
    covered |= {"guidance_ignored"}  # in test_guidance_following.py
    assert covered == set(SIGNALS)
    assert all(says.__doc__ for says in SIGNALS.values())


@pytest.mark.parametrize(
    "limits", [AttentionSettings(), AttentionSettings(unchanged_steps=3, error_streak=2)]
)
def test_a_watch_that_begins_anywhere_finds_the_same(limits: AttentionSettings) -> None:
    """As after a kill: the last steps from the journal are enough."""
    kinds: Steps = [(BAD,), (run("ls"),), (edit(),), (look(),), (sleep(90, []),), (score(5),)]
    records = [step(n, *kinds[n * n % 7 % 6], changed=bool(n % 5 == 0)) for n in range(1, 120)]
    whole = AttentionTracker(limits)
    for number, record in enumerate(records):
        assert record.observation is not None
        now = observe_step(record.step, record.sample, record.results, record.observation)
        again = AttentionTracker(limits, records[max(0, number - window_length(limits)) : number])
        budgets = RemainingBudgets(best=90.0)
        assert whole.step(now, budgets) == again.step(now, budgets), number


def test_an_empty_step_has_no_signal() -> None:
    assert (
        active_signals(
            AttentionWindow([ObservedStep(1, (), None)], RemainingBudgets(steps_left=1)),
            AttentionSettings(),
        )
        == {}
    )


@pytest.mark.parametrize("gives", ["raise KeyError('x')", "return 3"])
def test_a_packages_signal_that_is_broken_marks_the_step_and_ends_nothing(
    gives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "houston_moon.py").write_text(f"def full(window, limits):\n    {gives}\n")
    info = tmp_path / "houston_moon-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: houston-moon\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[houston.signals]\nfull = houston_moon:full\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "houston_moon", raising=False)
    step = ObservedStep(1, (), None)
    signals = AttentionTracker(AttentionSettings(signals=("full",))).step(
        step, RemainingBudgets(steps_left=1)
    )
    assert "the code of this signal failed" in signals["full"]


def test_the_loops_own_last_evaluation_is_not_the_agents_repetition() -> None:
    last = step(2, run("ls"), finish(), score(5), changed=False)
    requested = msgspec.structs.replace(last.sample, calls=last.sample.calls[:2])
    budgets = {**FULL, "best": 5.0, "finished": True}
    signals = {
        who: look_at([step(1, score(5)), record], AttentionSettings(), **budgets)
        for who, record in (
            ("the loop", msgspec.structs.replace(last, sample=requested)),
            ("the agent", last),
        )
    }
    assert "repeated_evaluation" not in signals["the loop"]
    assert "repeated_evaluation" in signals["the agent"]
    assert "low_finish" in signals["the loop"]
