"""Steps that went wrong: which observations are errors, and which only look like it."""

from typing import Any

import pytest

from houston_daemon.review.rules import error_rules
from houston_shared.task_tables import RuleSettings
from tests.support.traced_rollouts import (
    Step,
    Steps,
    begin,
    call,
    create,
    edit,
    finish,
    kill,
    output,
    run,
    sleep,
    traced,
)

TRACE = (
    "Traceback (most recent call last):\n  File \"/workspace/a.py\", line 3, in f\nKeyError: 'x'"
)
SYNTAX = "  File \"/workspace/a.py\", line 2\n    if x\n        ^\nSyntaxError: expected ':'"
BAD_ARGUMENT = call("open_file", "error", "Error: unknown", False, refused="no argument `pth`")

ERRORS: dict[str, tuple[Steps, dict[str, Any], dict[int, str]]] = {
    "a call failed": ([run("make", "no rule", 2)], {}, {1: "exit code 2"}),
    "another call of the step failed": ([(run("ls"), run("make", code=2))], {}, {1: "make"}),
    "a traceback is its last line": ([run("python a.py", TRACE, 1)], {}, {1: "KeyError: 'x'"}),
    "a traceback behind a pipe": ([run("python a.py 2>&1 | tee l", TRACE)], {}, {1: "KeyError"}),
    "no such command": ([run("foo; ls", "bash: line 1: foo: command not found")], {}, {1: "foo"}),
    "a tool said no": ([call("open_file", "error", "Error: no file", False)], {}, {1: "no file"}),
    "left running, it failed later": (
        [begin("python train.py"), sleep(), output(TRACE, False, 1)], {},
        {1: "it was left running and ended with exit code 1 (step 3)"}),
    "left running and found by its status": (
        [begin("python train.py"), call("get_session_status", "status", session_id="main",
                                        running=False, exit_code=3, _session_id="main")], {},
        {1: "exit code 3 (step 2)"}),
    "a pattern of the task": (
        [run("x", "CUDA out of memory")], {"error_patterns": ("^CUDA out.*",)},
        {1: "CUDA out of memory"}),
    "even where patience is right": ([(sleep(), run("make", code=2))], {}, {1: "make"}),
    "all went well": ([run("make"), output("fine"), finish()], {}, {}),
    "grep found nothing": ([run("cat a | grep -c x", "", 1)], {}, {}),
    "diff found something": ([run("cd b && diff a b", "< 1", 1)], {}, {}),
    "grep itself failed": ([run("grep x nofile", "No such file", 2)], {}, {1: "exit code 2"}),
    "another's traceback is read": ([run("tail -n 5 log.txt", TRACE)], {}, {}),
    "looking at a session that failed": ([output(TRACE, False, 1)], {}, {}),
    "left running, it goes on": ([begin("python train.py"), output("loss 1")], {}, {}),
    "left running, it ended well": ([begin("python train.py"), output("", False, 0)], {}, {}),
    "left running and ended by the agent": (
        [begin("python train.py"), kill(), output("", False, 137)], {}, {}),
    "cut short by a crash of the daemon": (
        [call("run_command", "interrupted", "Interrupted", False)], {}, {}),
    "the evaluation that the loop makes at the end": (
        [Step(finish(), call("eval", text="Error: nothing there", ok=False), added=1)], {}, {}),
    "a person's word came first": ([call("sleep", "interrupted", "[not run]", True)], {}, {}),
    "another's traceback after a wait": ([run("sleep 60; tail -50 train.log", TRACE)], {}, {}),
    "in a loop that waits": (
        [run("for i in 1 2; do sleep 5; tail -5 train.log; done", TRACE)], {}, {}),
    "until it is there": ([run("while ! grep -q x a; do sleep 5; done; cat log", TRACE)], {}, {}),
    "after a variable": ([run("L=train.log; tail $L", TRACE)], {}, {}),
    "in what git shows": ([run("git -C x show HEAD && git log -p; git diff", TRACE)], {}, {}),
    "a program that prints a log": (
        [run("python - <<'E'\nprint(open('train.log').read())\nE", TRACE)], {}, {}),
    "a program that fails itself": (
        [run("python - <<'E' | tail\nx\nE", TRACE.replace("/workspace/a.py", "<stdin>"))], {},
        {1: "KeyError"}),
    "a run after a wait": ([run("sleep 5; python a.py | tail", TRACE)], {}, {1: "KeyError"}),
    "git runs something": ([run("git bisect run python a.py", TRACE)], {}, {1: "KeyError"}),
    "the file is not there": ([run("test -f out.json && echo yes", "", 1)], {}, {}),
    "it is not found": ([run("cd b && grep -q foo a && echo found", "", 1)], {}, {}),
    "in double brackets": ([run("ls; [[ -f x ]]", "a", 1)], {}, {}),
    "no such program": ([run("command -v vllm", "", 1)], {}, {}),
    "no such program, in words": (
        [run("type vllm", "bash: type: vllm: not found", 1), run("which x", "no x in (/bin)", 1)],
        {}, {}),
    "nor another": ([run("which x || command -v y", "", 1)], {}, {}),
    "it gives up": ([run("test -f x || exit 1", "", 1)], {}, {}),
    "then nothing was run": ([run("test -f x && python a.py", "", 1)], {}, {}),
    "in a loop": ([run("for f in a b; do test -f $f && echo $f; done", "", 1)], {}, {}),
    "then something failed": ([run("test -f x && python a.py", "no config", 1)], {}, {1: "code 1"}),
    "something else failed": ([run("grep -q x a; python a.py", "", 1)], {}, {1: "code 1"}),
    "what follows `or` failed": ([run("grep -q x a || make", "", 1)], {}, {1: "code 1"}),
    "it gives up what failed": ([run("python a.py || exit 1", "", 1)], {}, {1: "code 1"}),
    "another code than 1": ([run("test -f x && make", "", 2)], {}, {1: "code 2"}),
    "left running, ended by name": (
        [begin("vllm serve m", session="s"), run("pkill -f vllm"), output("", False, 143,
         session="s")], {}, {}),
    "left running, ended by number": (
        [begin("python a.py", session="s"), run("kill -9 123"), output("", False, 137,
         session="s")], {}, {}),
    "left running, interrupted": (
        [begin("python a.py"), call("input_in_session", "command", _input_text="\x03",
         _session_id="main", session_id="main", running=False, exit_code=130)], {}, {}),
    "left running for so long": (
        [begin("timeout 600 python train.py"), output("", False, 124)], {}, {}),
    "for so long": ([run("timeout -k 5 60 python train.py", "loss 1", 124)], {}, {}),
    "for so long, by its script": (
        [create("run.sh", "timeout 60 python train.py\n"), begin("bash run.sh"),
         output("", False, 124)], {}, {}),
    "ended by its own command": ([run("python s.py & sleep 5; kill $!; wait", "", 143)], {}, {}),
    "nobody ended it": ([begin("python a.py"), output("", False, 143)], {}, {1: "code 143"}),
    "out of memory": ([begin("python a.py"), output("", False, 137)], {}, {1: "code 137"}),
    "out of memory, another was ended": (
        [begin("python a.py", session="s"), run("pkill -9 -f vllm"), output("", False, 137,
         session="s")], {}, {1: "code 137"}),
    "out of memory, a softer signal": (
        [begin("python a.py", session="s"), run("kill 123"), output("", False, 137,
         session="s")], {}, {1: "code 137"}),
    "ended after it had failed": (
        [begin("vllm serve m"), output("", False, 143), run("pkill -f vllm")], {}, {1: "143"}),
    "of itself": ([run("python a.py", "", 124)], {}, {1: "code 124"}),
    "failed within its time": ([run("timeout 60 python a.py", "", 2)], {}, {1: "code 2"}),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_in_the_observation(case: str) -> None:
    steps, settings, expected = ERRORS[case]
    findings = dict(error_rules.error_observation(traced(steps), RuleSettings(**settings)))
    assert findings.keys() == expected.keys()
    assert all(words in findings[step] for step, words in expected.items()), findings


NULLS: dict[str, tuple[Steps, dict[int, str]]] = {
    "nothing could be read": ([Step(malformed="no JSON")], {1: "no action: no JSON"}),
    "no call": ([Step()], {1: "no action"}),
    "a wrong argument": ([BAD_ARGUMENT], {1: "open_file cannot be run: no argument `pth`"}),
    "a person stopped its sample": ([Step(malformed="cut", reason="interrupted")], {}),
    "it thinks": ([call("think")], {}),
    "it acts": ([run("ls")], {}),
}


@pytest.mark.parametrize("case", NULLS)
def test_no_action(case: str) -> None:
    steps, expected = NULLS[case]
    assert dict(error_rules.null_action(traced(steps), RuleSettings())) == expected


BROKEN: dict[str, tuple[Steps, dict[int, str]]] = {
    "written wrongly, run later": (
        [create("a.py"), run("ls"), run("python a.py", SYNTAX, 1)], {1: "in step 3: SyntaxError"}),
    "it was the edit": ([create("a.py"), edit("a.py"), run("python a.py", SYNTAX, 1)],
                        {2: "a.py could not be parsed"}),
    "by a here-document": ([run("cat > a.py <<'E'\nif x\nE"), run("python a.py", SYNTAX, 1)],
                           {1: "a.py"}),
    "another file is broken": ([create("b.py"), run("python a.py", SYNTAX, 1)], {}),
    "it raised": ([create("a.py"), run("python a.py", TRACE, 1)], {}),
    "the log of another is read": ([create("a.py"), run("cat log", SYNTAX)], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_cannot_be_parsed(case: str) -> None:
    steps, expected = BROKEN[case]
    findings = dict(error_rules.broken_file(traced(steps), RuleSettings()))
    assert findings.keys() == expected.keys()
    assert all(words in findings[step] for step, words in expected.items()), findings
