"""The set of rules as a whole: what is kept, what a task may choose, and what is sent."""

from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.review import verdict_updates
from houston_daemon.review.rollout_trace import RolloutTrace, Rule, RuleFinding
from houston_daemon.review.rules import rule_catalog
from houston_shared import plugins, secret_redaction, verdict_precedence
from houston_shared.control_messages import REASON_LIMIT
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.task_tables import RuleSettings
from houston_shared.verdict_precedence import MAX_RULE_REASON_CHARACTERS, RuleReason
from tests.support.traced_rollouts import (
    EVALUATED,
    Step,
    Steps,
    begin,
    call,
    create,
    edit,
    finish,
    kill,
    listing,
    look,
    output,
    run,
    score,
    sleep,
    think,
    traced,
)

RAISED = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1'

KEPT: dict[str, Steps] = {
    "sleeping while a job runs": [
        begin("torchrun --nproc_per_node=8 train.py"), sleep(3600, ["main"]), output("loss 2.1"),
        sleep(3600, ["main"]), sleep(3600, ["main"]), output("loss 1.1", False, 0),
    ],
    "sleeping, though a person spoke of something else": [
        begin("python train.py"), Step(sleep(3600), said="Do not use LoRA."), sleep(3600),
        output("", False, 0),
    ],
    "exploring": [
        listing("train.py  120\nREADME.md  3"), look("README.md"), look("train.py"),
        call("search_dir", "search", "", path="."), run("wc -l *.py"), run("grep -c x a.py", "", 1),
        call("web_search", "results", "", _query="near duplicates"), think(), run("nvidia-smi"),
    ],
    "trying several ways, the last is the best": [
        create("a.py"), run("python a.py"), score(10), create("b.py"), run("python b.py"), score(5),
        create("c.py"), run("python c.py"), score(20), finish(),
    ],
    "debugging: look, mend, try": [
        create("a.py"), run("python a.py"), look("a.py"), edit("a.py"), run("python a.py"),
        run("python -m pdb a.py"), run("tail -n 20 log.txt", RAISED), output(RAISED, True),
    ],
    "trying on one GPU before all are used": [
        run("CUDA_VISIBLE_DEVICES=0 python train.py --max_steps 2"),
        run("torchrun --nproc_per_node=8 train.py"),
    ],
    "backing up, and choosing the best at the end": [
        create("answer.json"), score(60), run("mkdir -p best && cp answer.json best/60.json"),
        run("ls -l best; cp best/60.json answer.json"), finish(),
    ],
    "waiting, though a person said that it crashed": [
        Step(look("train.log"), said="Stop sleeping, the job has crashed."),
        begin("python train.py"), sleep(600, ["main"]), sleep(600, ["main"]),
        output("", False, 0),
    ],
    "a backup of what a person wants left alone": [
        Step(look("train.py"), said="Do not run train.py again, fix the loader first."),
        run("cp train.py backup/train.py"), run("git diff train.py"),
    ],
    "waiting for a log of another": [
        run("sleep 60; tail -50 train.log", RAISED),
        run("for i in 1 2; do sleep 5; tail train.log; done", RAISED), run("git log -p", RAISED),
    ],
    "ending a server of another session": [
        begin("vllm serve m", session="s"), run("pkill -f vllm"), output("", False, 143,
        session="s"),
    ],
    "looking whether something is there": [
        run("test -f out.json && echo yes", "", 1), run("command -v vllm", "", 1),
    ],
    "an edit in place after a look": [
        run("cat train.py"), run("sed -i 's|0.1|0.25|' ./train.py"),
    ],
    "ending what hangs": [begin("python a.py"), sleep(60), kill(), output("", False, 130)],
    "a script of its own where none is given": [
        create("clean.py", "print(1)"), run("python clean.py"), create("inference_new.py"),
        run("python inference_new.py"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_no_rule_masks_what_is_good(case: str) -> None:
    trace = traced(KEPT[case], EVALUATED, gpus={"local": 8})
    assert rule_catalog.run_rules(trace) == {}


def rules(trace: RolloutTrace) -> dict[int, list[str]]:
    return {
        step: [mask.rule for mask in masks] for step, masks in rule_catalog.run_rules(trace).items()
    }


def test_an_error_is_masked_also_where_patience_is_right() -> None:
    failed = call("sleep", "error", "Error: longer than allowed", False, _sleep_time=99_999)
    trace = traced([begin("python train.py"), failed, sleep(), output("", False, 0)])
    assert rules(trace) == {2: ["error_observation"]}


HISTORY: Steps = [
    create("answer.json"), score(100), run("make", code=2), edit("a.py"), finish()
]  # fmt: skip


def test_a_step_has_every_rule_that_masks_it_in_order_with_version_and_reason() -> None:
    masks = rule_catalog.run_rules(traced(HISTORY, EVALUATED))
    assert rules(traced(HISTORY, EVALUATED)) == {
        3: ["error_observation", "after_best"],
        4: ["blind_edit", "after_best"],
    }
    mask = masks[4][0]
    assert (mask.step, mask.version) == (4, rule_catalog.RULES["blind_edit"].version)
    assert mask.reason == "a.py was changed and not looked at in the step before"


CHOSEN: dict[str, tuple[str, dict[int, list[str]]]] = {
    "all": ("", {3: ["error_observation", "after_best"], 4: ["blind_edit", "after_best"]}),
    "some are off": ('off = ["after_best", "blind_edit"]', {3: ["error_observation"]}),
    "only some": ('only = ["blind_edit"]', {4: ["blind_edit"]}),
    "a threshold": ("max_score = 99", {3: ["error_observation", "after_best"],
                                     4: ["blind_edit", "after_best"]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOSEN)
def test_a_task_chooses_its_rules(case: str) -> None:
    lines, expected = CHOSEN[case]
    assert rules(traced(HISTORY, f"{EVALUATED}[rules]\n{lines}")) == expected


def test_a_branch_says_nothing_of_the_past_that_it_shares() -> None:
    shared = Step(run("make", code=2), inherited="parent")
    assert rules(traced([shared, run("make", code=2)])) == {2: ["error_observation"]}


WRONG: dict[str, tuple[RuleSettings, str]] = {
    "no such rule": (
        RuleSettings(off=("blind_edits",)),
        "There is no rule 'blind_edits'; there are: err",
    ),
    "none that is wanted": (RuleSettings(only=("x",)), "There is no rule 'x'"),
    "both": (RuleSettings(only=("after_best",), off=("blind_edit",)), "cannot be given together"),
    "no expression": (RuleSettings(error_patterns=("(",)), "no regular expression"),
    "a package that is not there": (RuleSettings(packages=("mine",)), "There is no rule 'mine'"),
    "Houston's own": (RuleSettings(packages=("blind_edit",)), "is built into Houston"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_choice_is_said(case: str) -> None:
    settings, words = WRONG[case]
    with pytest.raises(ConfigurationError) as problem:
        rule_catalog.load_rules(settings)
    assert words in str(problem.value)


def short(trace: RolloutTrace, settings: RuleSettings) -> Iterator[tuple[int, str]]:
    """A package's rule: steps with one call."""
    yield from ((step.step, "one call") for step in trace.observed_steps if len(step.calls) == 1)


def test_a_package_brings_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(group: str, name: str, what: str) -> Any:
        assert (group, what) == (plugins.RULE_GROUP, "rule")
        return {"short": short, "broken": lambda *_: 1 / 0, "text": "x"}[name]

    monkeypatch.setattr(plugins, "load_plugin", load)
    choice = '[rules]\npackages = ["{}"]\nonly = ["{}"]\n'
    assert rules(traced([run("ls")], choice.format("short", "short"))) == {1: ["short"]}
    with pytest.raises(HoustonError, match="The code of the rule 'broken' failed: ZeroDivision"):
        rule_catalog.run_rules(traced([run("ls")], choice.format("broken", "broken")))
    with pytest.raises(ConfigurationError, match="is not a function"):
        rule_catalog.load_rules(RuleSettings(packages=("text",)))


def fails(trace: Any, settings: RuleSettings) -> Any:
    yield RuleFinding(1, "before")
    raise IndexError(f"no such\n  word {'!' * 900}")


def test_a_rule_of_houston_that_fails_says_which_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rule_catalog, "RULES", {**rule_catalog.RULES, "broken_file": Rule(1, fails)}
    )
    with pytest.raises(rule_catalog.RuleFailed) as failure:
        rule_catalog.run_rules(traced([run("ls")]))
    cause = "The code of the rule 'broken_file' failed: IndexError: no such word !!!"
    assert failure.value.cause.startswith(cause) and len(failure.value.cause) < 400
    off = '[rules]\noff = ["broken_file"]\n'
    assert rule_catalog.run_rules(traced([run("ls")], off)) == {}


def stored(*verdicts: tuple[int, Any, str], source: str = "rule", attempt: int = 1) -> Any:
    """What stands of steps, as the store says it."""
    return {
        step: [SourceVerdict(step, attempt, source, verdict, "rules", reason, 0, 0)]
        for step, verdict, reason in verdicts
    }


ERROR = (
    f"error_observation@{rule_catalog.RULES['error_observation'].version}:"
    " run_command make: exit code 2"
)


def test_only_what_differs_is_sent_and_the_second_time_nothing() -> None:
    trace = traced([run("make", code=2), run("ls"), run("make", code=2), run("make", code=2)])
    masked = [(step, "mask", ERROR) for step in (1, 3, 4)]
    (message,) = verdict_updates.rule_verdict_messages(trace, {})
    assert [(span.first, span.last, span.verdict, span.reason) for span in message.steps] == [
        (1, 1, "mask", ERROR), (3, 4, "mask", ERROR)
    ]  # fmt: skip
    assert (message.source, message.by) == ("rule", "rules")
    assert verdict_updates.rule_verdict_messages(trace, stored(*masked)) == []
    some = verdict_updates.rule_verdict_changes(
        trace, stored(*masked[:2], (2, "mask", "blind_edit@1: x"))
    )
    assert [(span.first, span.verdict) for span in some] == [(2, "undecided"), (4, "mask")]
    other = stored(*masked, source="human")
    assert [span.first for span in verdict_updates.rule_verdict_changes(trace, other)] == [1, 3]
    assert len(verdict_updates.rule_verdict_changes(trace, stored(*masked, attempt=2))) == 2, (
        "of a replaced attempt"
    )
    again = stored((1, "mask", "error_observation@0: x"), *masked[1:])
    assert [span.first for span in verdict_updates.rule_verdict_changes(trace, again)] == [1], (
        "another version says it"
    )


KEY = "qV7rT2mX9bLp4WzN8cHd"
LEAKS: dict[str, tuple[str, str]] = {
    "whole": (f"curl -H {KEY} x", "run_command curl -H [secret:LATE_TOKEN] x: exit code 2"),
    "cut in the call": (
        f"curl {'x' * 66} {KEY}", f"run_command curl {'x' * 66} [secret:LATE_TOKEN]…: exit code 2"),
    "no secret": ("curl -H qV7rT2m x", "run_command curl -H qV7rT2m x: exit code 2"),
}  # fmt: skip


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key is configured after the agent wrote it."""
    monkeypatch.setenv("LATE_TOKEN", KEY)
    secret_redaction.process_redactor.cache_clear()
    yield
    monkeypatch.undo()
    secret_redaction.process_redactor.cache_clear()


@pytest.mark.parametrize("case", LEAKS)
def test_a_reason_is_compared_shown_and_sent_as_it_is_stored(case: str, late: None) -> None:
    command, expected = LEAKS[case]
    trace = traced([run(command, code=2)])
    masks = verdict_updates.rule_masks(trace, rule_catalog.run_rules(trace))
    version = rule_catalog.RULES["error_observation"].version
    assert masks == {1: ("mask", f"error_observation@{version}: {expected}")}
    assert verdict_updates.error_steps(rule_catalog.run_rules(trace)) == {1: masks[1].reason}
    (span,) = verdict_updates.rule_verdict_changes(trace, {})
    assert span.reason == masks[1].reason == secret_redaction.redact(span.reason)
    assert verdict_updates.rule_verdict_changes(trace, stored((1, "mask", span.reason))) == []


def test_a_secret_is_taken_out_before_a_reason_is_cut(late: None) -> None:
    """A few characters of one are found no more."""
    masks = [rule_catalog.RuleMask(1, "mine", 1, f"{'x' * (MAX_RULE_REASON_CHARACTERS - 8)} {KEY}")]
    (verdict,) = verdict_updates.rule_masks(traced([run("ls")]), {1: masks}).values()
    assert KEY[:4] not in verdict.reason and verdict.reason.endswith("…")


def test_much_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_updates, "MAX_JUDGED_RANGES", 3)
    trace = traced([action for n in range(7) for action in (run(f"make {n}", code=2), run("ls"))])
    sent = verdict_updates.rule_verdict_messages(trace, {})
    assert [len(message.steps) for message in sent] == [3, 3, 1]
    assert len({message.request for message in sent}) == 3
    monkeypatch.setattr(verdict_updates, "MAX_JUDGED_STEPS", 2)
    trace = traced([run("make", code=2)] * 5)
    sizes = [
        [(span.first, span.last) for span in part.steps]
        for part in verdict_updates.rule_verdict_messages(trace, {})
    ]
    assert sizes == [[(1, 2)], [(3, 4)], [(5, 5)]]


def test_reasons_are_one_text_in_which_the_rules_are_found() -> None:
    reasons = [RuleReason("error_observation", 1, "ls: no; such file"), RuleReason("b", 12, "c: d")]
    text = verdict_precedence.join_rule_reasons(reasons)
    assert text == "error_observation@1: ls: no; such file; b@12: c: d"
    assert verdict_precedence.split_rule_reasons(text) == reasons
    assert verdict_precedence.split_rule_reasons("not worth it; see above") == []
    forged = verdict_precedence.join_rule_reasons([RuleReason("a", 1, "x; b@1: y\nz")])
    assert [reason.rule for reason in verdict_precedence.split_rule_reasons(forged)] == ["a"]
    many = [RuleReason(f"r{n}", n, "why " * 200) for n in range(13)]
    joined = verdict_precedence.join_rule_reasons(many)
    assert len(joined) <= REASON_LIMIT
    rules = [reason.rule for reason in verdict_precedence.split_rule_reasons(joined)]
    assert rules == [reason.rule for reason in many]


def test_every_rule_has_a_name_a_version_and_words() -> None:
    for name, rule in rule_catalog.RULES.items():
        assert isinstance(rule, Rule)
        assert rule.masks.__name__ == name
        assert rule.version >= 1
        assert (rule.masks.__doc__ or "").strip()
