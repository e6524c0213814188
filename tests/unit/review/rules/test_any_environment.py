"""Rules read what any environment returns, also one of a package: nothing that it says breaks them,
and they find the same every time.
"""

import random
from typing import Any

import pytest

from houston_daemon.review.rules import rule_catalog
from tests.support.traced_rollouts import EVALUATED, Done, Step, Steps, call, traced

NAMES = (
    "run_command", "open_file", "edit_file", "create_file", "eval", "finish", "sleep", "think",
    "get_session_output", "kill_session_processes", "list_sessions", "close_session", "act", "x",
)  # fmt: skip
KINDS = (
    "command", "file", "eval", "finish", "sleep", "killed", "session", "sessions", "status", "idle",
    "listing", "found", "search", "parsed", "error", "interrupted", "act", "odd",
)  # fmt: skip
KEYS = (
    "path", "change", "running", "exit_code", "session_id", "state", "overall_score", "error",
    "finished", "sessions", "closed", "is_idle", "asked", "_command", "_path", "_filename",
    "_content", "_start", "_end", "_host", "_session_id",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, "", True, False, 0, 1, -3, 2.5, "main", "a.py", "edited", "created", "replaced", [], [1],
    ["main"], {}, {"a": 1}, [{"session_id": "main", "running": False}], ["x", {"y": 2}], "scored",
    "python a.py & sed -i s/x/y/ a.py", "cat > a.py <<E\nimport transformers\nE\npython a.py",
    "CUDA_VISIBLE_DEVICES=0 torchrun train.py", "for x in '", "\x00\ud83d", "((((", "\n;|&\n",
)  # fmt: skip
SAID = ("", "", "Do not use transformers.", "Stop running `a.py`!", "never (", "do not edit a.py")


def anything(dice: random.Random) -> Done:
    """A call with any fields."""
    keys = dice.sample(KEYS, dice.randint(0, 9))
    fields = {key: dice.choice(VALUES) for key in keys}
    text = dice.choice(
        ["", "Traceback (most recent call last):\nKeyError: 1", "a.py b.sh", "x" * 9]
    )
    error = {"error": fields.pop("error")} if "error" in fields else {}
    result = call(dice.choice(NAMES), dice.choice(KINDS), text, dice.random() < 0.7, **fields)
    result["fields"] |= error
    return result


@pytest.mark.parametrize("seed", range(12))
def test_no_environment_breaks_a_rule(seed: int) -> None:
    dice = random.Random(seed)
    steps: Steps = [
        Step(
            *[anything(dice) for _ in range(dice.randint(0, 3))],
            said=dice.choice(SAID), changed=dice.choice([True, False, None]),
            malformed=dice.choice(["", "", "", "no JSON"]),
        )
        for _ in range(40)
    ]  # fmt: skip
    trace = traced(steps, EVALUATED, gpus={"local": 8})
    masks = rule_catalog.run_rules(trace)
    assert masks == rule_catalog.run_rules(trace)
    assert set(masks) <= set(range(1, 41))
    assert all(mask.reason for step_masks in masks.values() for mask in step_masks)
