"""Edits, evaluations, the end, and what follows the best score: each rule as named scenarios."""

from typing import Any

import pytest

from houston_daemon.review.rollout_trace import RuleFunction
from houston_daemon.review.rules import blind_edit_rule, evaluation_rules
from houston_shared.task_tables import RuleSettings
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

Case = tuple[Steps, dict[str, Any], set[int]]
OFF = {"blind_replacements": False}

BLIND: dict[str, Case] = {
    "looked at in the step before": ([look(), edit()], {}, set()),
    "printed by a command": ([run("sed -n 1,9p a.py"), edit()], {}, set()),
    "its run showed where it fails": ([run("python a.py", code=1), edit()], {}, set()),
    "found by a search in it": (
        [call("search_file", "search", "", path="a.py", _file_path="a.py"), edit()], {}, set()),
    "never looked at": ([run("ls"), edit()], {}, {2}),
    "the first step": ([edit()], {}, {1}),
    "an edit right after an edit": ([look(), edit(), edit()], {}, {3}),
    "looked at between edits": ([look(), edit(), look(), edit()], {}, set()),
    "looked at two steps before": ([look(), run("make"), edit()], {}, {3}),
    "within a wider window": ([look(), run("make"), edit()], {"blind_edit_steps": 2}, set()),
    "only looked elsewhere between": ([look(), run("ls"), look("b.py"), edit()], {}, set()),
    "edits of others between": (
        [look(), look("b.py"), edit("b.py"), sleep(), edit()], {}, set()),
    "out of sight": ([look(), *[run("ls")] * 6, edit()], {}, {8}),
    "a wider window sees no older text": ([look(), edit(), edit()], {"blind_edit_steps": 5}, {3}),
    "a thought between": ([look(), think(), edit()], {}, set()),
    "in the same step": ([(look(), edit())], {}, {1}),
    "another file was looked at": ([look("b.py"), edit()], {}, {2}),
    "a look that failed": (
        [call("open_file", "error", "no", False, _path="a.py"), edit()], {}, {2}),
    "an edit that failed": ([run("ls"), call("edit_file", "error", "no", False)], {}, set()),
    "a new file": ([create("a.py")], {}, set()),
    "a file written anew": ([run("ls"), create("a.py", change="replaced")], {}, {2}),
    "that is no edit": ([run("ls"), create("a.py", change="replaced")], OFF, set()),
    "an edit of what was just written": ([create("a.py"), edit()], {}, set()),
    "an edit of what was just written anew": (
        [look(), create("a.py", change="replaced"), edit()], {}, set()),
    "twice in place by the shell": (
        [run("cat src/a.py"), run("sed -i s/1/2/ src/a.py"), run("sed -i s/2/3/ src/a.py")], {},
        {3}),
    "written anew after a look": ([look(), create("a.py", change="replaced")], {}, set()),
    "lines that are appended": ([run("echo x >> a.py")], {}, set()),
    "in place by the shell": ([run("sed -i 's/1/2/' src/a.py")], {}, {1}),
    "by the shell after a look": ([run("cat src/a.py"), run("sed -i s/1/2/ src/a.py")], {}, set()),
    "on another host": ([look(), call("edit_file", "file", "", path="a.py", change="edited",
                                      _path="a.py", _host="gpu")], {}, {2}),
}  # fmt: skip

SCORED = score(50)
REPEATED: dict[str, Case] = {
    "nothing changed": ([create("answer.json"), SCORED, look(), SCORED], {}, {4}),
    "something changed": ([SCORED, create("a.py"), SCORED], {}, set()),
    "changed in the step of the score": ([(create("a"), SCORED), SCORED], {}, {2}),
    "twice in a step": ([create("a"), (SCORED, SCORED)], {}, {2}),
    "not known whether it changed": (
        [SCORED, Step(run("python a.py"), changed=None), Step(SCORED, changed=None)], {}, set()),
    "made by the loop at the end": ([SCORED, Step(finish(), SCORED, added=1)], {}, set()),
    "only one": ([create("a"), SCORED], {}, set()),
    "a world that scores what is done": (
        [Step(*[{**score(n), "call": call("act", _command="take")["call"]} for n in (5, 9)],
              changed=None)], {}, set()),
}  # fmt: skip

FORM = score(None, "format", "answer.json is missing. No submission was used.")
MAKES = begin("python make.py --out answer.json")
EVALUATION: dict[str, Case] = {
    "nothing there to score": ([FORM], {}, {1}),
    "still being written": ([MAKES, SCORED], {}, {2}),
    "still being written, after another edit": ([MAKES, edit(), SCORED], {}, {3}),
    "still being written, as a look showed": (
        [MAKES, sleep(), output("12 %"), SCORED], {}, {4}),
    "looked at in the same step": ([MAKES, sleep(), (output("12 %"), SCORED)], {}, {3}),
    "it may be done after a sleep": (
        [MAKES, sleep(1800, ["main"]), run("wc -l answer.json", session="b"), SCORED], {}, set()),
    "it may be done after a sleep alone": ([MAKES, sleep(1800, ["main"]), SCORED], {}, set()),
    "it may be done after a sleep in the shell": (
        [MAKES, run("sleep 900", session="b"), SCORED], {}, set()),
    "what it writes was looked at": ([MAKES, look("answer.json"), SCORED], {}, set()),
    "what it writes was checked": (
        [MAKES, run("python check.py answer.json", session="b"), SCORED], {}, set()),
    "written and done": (
        [begin("python make.py --out answer.json"), output("", False, 0), SCORED], {}, set()),
    "something else runs": ([begin("python train.py"), SCORED], {}, set()),
    "a good one": ([create("answer.json"), SCORED], {}, set()),
}  # fmt: skip

TRAIN = begin("python train.py")
FINISH: dict[str, Case] = {
    "while a command runs": ([SCORED, TRAIN, finish()], {}, {3}),
    "while one runs in another session": (
        [SCORED, begin("x", session="b"), run("ls"), finish()], {}, {4}),
    "as a look showed": ([SCORED, TRAIN, sleep(), output("loss 2"), finish()], {}, {5}),
    "it may have ended in a sleep": ([SCORED, TRAIN, sleep(9, ["main"]), finish()], {}, set()),
    "its log was looked at": (
        [SCORED, begin("python train.py > train.log"), run("tail train.log", session="b"),
         finish()], {}, set()),
    "after it ended": ([SCORED, TRAIN, output("", False, 0), finish()], {}, set()),
    "after it was ended": ([SCORED, TRAIN, kill(), finish()], {}, set()),
    "after a sleep that saw nothing run": ([SCORED, TRAIN, sleep(9, []), finish()], {}, set()),
    "a server runs": ([SCORED, begin("vllm serve m"), finish()], {}, set()),
    "refused": ([SCORED, TRAIN, finish(ok=False)], {}, set()),
    "below the best": ([score(70), create("a"), score(60), finish()], {}, {4}),
    "the best was brought back": ([score(70), create("a"), score(60), run("cp best answer.json"),
                                   Step(finish(), score(70), added=1)], {}, set()),
    "without a score": ([run("ls"), finish()], {}, {2}),
    "what was scored before is gone": (
        [score(70), run("mv answer.json gone"), Step(finish(), FORM, added=1)], {}, {3}),
    "scored at the end": ([create("answer.json"), Step(finish(), score(9), added=1)], {}, set()),
    "at its best": ([score(60), create("a"), score(70), finish()], {}, set()),
}  # fmt: skip

LOOKS = (
    run("tail -n 3 train.log 2>&1 | grep loss"), run("nvidia-smi"), run("sleep 60; ls > /dev/null"),
    run("for f in *.log; do wc -l $f; done"), run("git status"), run("find . | xargs wc -l"),
    run("while ps -p 12 > /dev/null; do sleep 9; done; tail train.log"), kill("b"),
    output(), listing("a"), look(), sleep(), think(),
    call("list_sessions", "sessions", sessions=[]), call("check_session_idle", "idle"),
    call("web_search", _query="x"), call("web_page_scroll_down", "page"),
)  # fmt: skip
LOWERED: dict[str, Case] = {
    "a change lowered it": ([score(70), create("a"), look(), score(60)], {}, {2}),
    "only a little": ([score(70), create("a"), score(69.5)], {}, set()),
    "a little counts": ([score(70), create("a"), score(69.5)], {"score_drop": 0.5}, {2}),
    "before a better one": ([score(70), create("a"), score(60), create("b"), score(80)], {}, set()),
    "the step that scored changed it": ([score(70), (create("a"), score(60))], {}, {2}),
    "between two lower ones": ([score(70), create("a"), score(60), create("b"), score(50)], {},
                               {2, 4}),
    "back up, but not to the best": (
        [score(60), create("a"), score(50), create("b"), score(58)], {}, {2}),
    "as low as before": ([score(60), create("a"), score(50), create("b"), score(50)], {}, {2}),
    "down again after it came back up": (
        [score(60), create("a"), score(50), create("b"), score(58), create("c"), score(55)], {},
        {2, 6}),
    "files that a job in the background changes": (
        [score(70), create("a"), *[Step(act, changed=True) for act in LOOKS], score(60)], {}, {2}),
    "a look and a sleep": (
        [score(70), create("a"), Step(sleep(), output(), changed=True), score(60)], {}, {2}),
    "a look and a change": (
        [score(70), Step(output(), run("echo 1 > answer.json"), changed=True), score(60)], {}, {2}),
    "no file was changed": (
        [score(70), create("a"), Step(run("python x.py"), changed=False), score(60)], {}, {2}),
    "an edit that failed": (
        [score(70), create("a"),
         Step(call("edit_file", "error", "no", False), changed=True), score(60)], {}, {2}),
    "the best is not high": ([score(30), create("a"), score(2)], {}, set()),
    "what is high is said": ([score(30), create("a"), score(2)], {"high_score": 20}, {2}),
    "nothing scored anything": ([score(0), create("a"), score(0)], {}, set()),
}  # fmt: skip

AFTER: dict[str, Case] = {
    "most of what follows": (
        [score(100), create("a"), run("python a.py"), score(60)], {}, {2, 3, 4}),
    "backups": (
        [score(100), run("mkdir -p best && cp answer.json best/100.json"), finish()], {}, set()),
    "sleeping and finishing": (
        [score(100), sleep(), think(), Step(finish(), score(100), added=1)], {}, {3}),
    "the best is brought back and scored": (
        [score(100), create("a"), score(60), run("cp best/100.json answer.json"), score(100),
         finish()], {}, {2, 3}),
    "scored again as good": ([score(100), create("a"), score(100)], {}, {2, 3}),
    "it gets better": ([score(60), create("a"), score(100)], {}, set()),
    "an early low best is not the highest there is": (
        [score(10), create("a"), run("python a.py"), score(5), create("b"), finish()], {}, set()),
    "the highest of this task is lower": (
        [score(70), create("a"), score(60)], {"max_score": 70}, {2, 3}),
    "no score": ([create("a"), finish()], {}, set()),
}  # fmt: skip

TABLES: dict[str, tuple[RuleFunction, dict[str, Case]]] = {
    "blind_edit": (blind_edit_rule.blind_edit, BLIND),
    "repeated_evaluation": (evaluation_rules.repeated_evaluation, REPEATED),
    "untimely_evaluation": (evaluation_rules.untimely_evaluation, EVALUATION),
    "untimely_finish": (evaluation_rules.untimely_finish, FINISH),
    "lowered_score": (evaluation_rules.lowered_score, LOWERED),
    "after_best": (evaluation_rules.after_best, AFTER),
}


@pytest.mark.parametrize(
    ("rule", "case"), [(rule, case) for rule, (_, cases) in TABLES.items() for case in cases]
)
def test_what_is_masked(rule: str, case: str) -> None:
    masks, cases = TABLES[rule]
    steps, settings, expected = cases[case]
    findings = list(masks(traced(steps, EVALUATED), RuleSettings(**settings)))
    assert {finding.step for finding in findings} == expected, findings
    assert all(finding.reason for finding in findings)


def test_what_follows_the_best_score_is_known_at_the_end() -> None:
    steps: Steps = [score(100), create("a"), score(60)]
    for rule in (evaluation_rules.lowered_score, evaluation_rules.after_best):
        assert list(rule(traced(steps, EVALUATED, ended=False), RuleSettings())) == []
        assert list(rule(traced(steps, EVALUATED), RuleSettings())) != []
