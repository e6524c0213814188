"""Commands that are left running, on one host and on several: what every rule says of them."""

from typing import Any

import pytest

from houston_daemon.review.rules import rule_catalog
from houston_daemon.review.rules.background_jobs import all_jobs
from tests.support.traced_rollouts import (
    EVALUATED,
    Done,
    Steps,
    begin,
    call,
    create,
    finish,
    kill,
    output,
    run,
    score,
    sleep,
    traced,
)

HOSTS = 'hosts = ["local", "gpu"]\n'
GPUS = {"local": 8, "gpu": 8}
LOW = "CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py --a"
HIGH = "CUDA_VISIBLE_DEVICES=4,5,6,7 python train.py --b"
ON = {"_host": "gpu", "session": "train"}
TRAIN = begin("python train.py", **ON)


def listed(**running: bool) -> Done:
    """A list of sessions, all on the second host."""
    entries = [
        {"session_id": name, "host": "gpu", "running": runs, "exit_code": None if runs else 0}
        for name, runs in running.items()
    ]
    return call("list_sessions", "sessions", sessions=entries, _host="all")


def closed(*names: str, host: str) -> Done:
    return call("close_session", "session", session_id="", change="closed", closed=names,
                _host=host)  # fmt: skip


CASES: dict[str, tuple[Steps, dict[int, list[str]]]] = {
    "it runs through a sleep and fails": (
        [TRAIN, sleep(600, ["gpu:train"]), output("", False, 1, **ON)], {1: ["error_observation"]}),
    "it runs through a sleep and is well": (
        [TRAIN, sleep(600, ["gpu:train"]), output("", False, 0, **ON)], {}),
    "it had ended before the sleep": (
        [score(9), TRAIN, sleep(600, []), finish()], {}),
    "a session of that name runs elsewhere": (
        [score(9), TRAIN, sleep(600, ["train"]), finish()], {}),
    "it is seen to run at the end": (
        [score(9), TRAIN, sleep(600, ["gpu:train"]), output("", True, **ON), finish()],
        {5: ["untimely_finish"]}),
    "a list shows that it runs": (
        [score(9), TRAIN, sleep(600, ["gpu:train"]), listed(train=True), finish()],
        {5: ["untimely_finish"]}),
    "a list shows that it ended": ([score(9), TRAIN, listed(train=False), finish()], {}),
    "two runs share the GPUs of a host": (
        [begin(LOW, _host="gpu", session="a"), sleep(60, ["gpu:a"]),
         begin(HIGH, _host="gpu", session="b"), sleep(60, ["gpu:a", "gpu:b"])], {}),
    "two on the first host, which calls name": (
        [begin(LOW, _host="local", session="a"), sleep(60, ["a"]),
         begin(HIGH, _host="local", session="b"), sleep(60, ["a", "b"])], {}),
    "the first of two had ended": (
        [begin(LOW, _host="gpu", session="a"), sleep(60, []),
         begin(HIGH, _host="gpu", session="b")], {1: ["idle_compute"], 3: ["idle_compute"]}),
    "a session of that name was closed elsewhere": (
        [TRAIN, closed("train", host="local"), output("", False, 1, **ON)],
        {1: ["error_observation"]}),
    "its session was closed": (
        [score(9), TRAIN, closed("train", host="gpu"), finish()], {}),
    "all were closed on every host": (
        [score(9), TRAIN, closed("local:main", "gpu:train", host="all"), finish()], {}),
    "an evaluation after a sleep and a look at what was written": (
        [begin("python predict.py --out answer.json", session="p"), sleep(1800, ["p"]),
         run("wc -l answer.json", "100 answer.json"), score(50), finish()], {}),
    "an evaluation right after it began": (
        [begin("python predict.py --out answer.json", session="p"), score(50), create("b"),
         finish()], {2: ["untimely_evaluation"], 4: ["untimely_finish"]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_rules_say_of_jobs(case: str) -> None:
    steps, expected = CASES[case]
    masks = rule_catalog.run_rules(traced(steps, HOSTS + EVALUATED, gpus=GPUS))
    assert {step: [m.rule for m in rules] for step, rules in masks.items()} == expected, masks


SURE: dict[str, tuple[list[Any], bool]] = {
    "it has just begun": ([], True),
    "another session was looked at": ([output("", True, session="b")], True),
    "it is busy": ([sleep(), call("check_session_idle", "idle", session_id="main",
                                  is_idle=False, _session_id="main")], True),
    "its state was asked for": ([sleep(), call("get_session_status", "status", session_id="main",
                                               running=True, _session_id="main")], True),
    "a signal did not end it": ([sleep(), call("kill_session_processes", "killed", running=True,
                                               session_id="main", _session_id="main")], True),
    "the agent ended it": ([kill()], False),
    "a sleep": ([sleep(60, ["main"])], False),
    "a sleep after a look": ([output(), sleep(60, ["main"])], False),
    "its output was listed": ([run("ls -l out.json", session="b")], False),
    "its script was looked at": ([run("cat make.py", session="b")], True),
}  # fmt: skip


@pytest.mark.parametrize("case", SURE)
def test_whether_a_job_is_known_to_run(case: str) -> None:
    then, sure = SURE[case]
    (job,) = all_jobs(traced([begin("python make.py --out out.json"), *then]))
    assert job.known_to_run(len(then) + 2) is sure
