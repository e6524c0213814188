"""What rollouts do while things die: tasks and scripts that come by every point of a worker."""

from typing import Any

from tests.faults.daemon_under_test import ENGINE, Ground

SHELL = ": ${mark:=$RANDOM$RANDOM$RANDOM}; echo shell $mark"
"""Says which shell it is: only the same one keeps the variable."""
LONG = "x" * 70_000
"""More than a row holds: it becomes a blob."""


def null(ground: Ground, steps: int = 40, delay: float = 0.02) -> Any:
    """Many cheap steps, a large thought now and then, and a context that is forked often."""
    script = [
        {
            "thought": f"{i} {LONG if i % 9 == 4 else ''}",
            "calls": [{"name": "noop", "arguments": {"text": f"step {i} " + "y" * 400}}] * 2,
            "delay": delay,
        }
        for i in range(1, steps + 1)
    ]
    text = 'environment = "null"\n[budget]\ncontext_tokens = 40000\nobservation_tokens = 2000\n'
    return ground.task("null", text, script)


def workstation(ground: Ground, steps: int = 10, delay: float = 0.05) -> Any:
    """A terminal that says who its shell is, a file that grows by a line a step, evaluations."""
    script: list[dict[str, Any]] = [
        {
            "thought": f"line {i}",
            "calls": [
                call("run_command", command=f"{SHELL}; echo {i} >> log.txt"),
                call("create_file", filename=f"file-{i}.txt", content=f"{i}\n"),
                call("edit_file", path=f"file-{i}.txt", start=1, end=1, content="changed\n"),
                *([call("eval")] if i == 4 else []),
            ],
            "delay": delay,
        }
        for i in range(1, steps + 1)
    ]
    text = (
        "[workspace]\nsource = 'workspace'\n[budget]\ncommand_seconds = 5\n"
        "[evaluate]\ncommand = 'echo {\\\"overall_score\\\": 50}'\nseconds = 8\n"
    )
    return ground.task("station", text, script)


def failing(ground: Ground, steps: int = 12) -> Any:
    """Steps whose first call is of no tool: two of three come right ahead, one never does."""
    wrong = {"thought": "wrong", "calls": [call("nop", text="x")]}
    right = {"thought": "right", "calls": [call("noop", text="x")]}
    script = [
        {**wrong, "delay": 0.02, "lookahead": [wrong, wrong if i % 3 == 2 else right]}
        for i in range(steps)
    ]
    text = 'environment = "null"\n[purify]\nenabled = true\nretries = 2\nshare = 1.0\n'
    return ground.task("failing", text, script)


def planned(ground: Ground, steps: int = 12) -> Any:
    """A flow whose answer is no action now and then, with a verifier that says no."""
    right = {"thought": "right", "calls": [call("noop", text="x")]}
    said = {"verifier": '{"answered": false, "reason": "go on"}'}
    script = [
        {**(right if i % 2 else {"thought": "hm"}), "lookahead": [right], "answers": said}
        for i in range(steps)
    ]
    text = 'agent = "flow"\nenvironment = "null"\n'
    return ground.task("planned", text, [{**line, "delay": 0.02} for line in script])


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def tokens(ground: Ground, steps: int = 12) -> Any:
    """Steps sampled over HTTP from an engine that the daemon starts, as token ids."""
    text = f'environment = "null"\n[budget]\nsteps = {steps}\nminimum_steps = {steps}\n'
    folder, _ = ground.task("tokens", text, [])
    return folder, ENGINE
