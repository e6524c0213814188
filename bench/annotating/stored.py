"""The home that is measured on, and the same steps as a file for consoles that read one.

Steps are written by the recorder's own journal, without its sockets; that takes seconds.
"""

import json
from pathlib import Path

from tests.console.home_builder import HomeBuilder

LONG, PEER, SHORT = "long-task-a001", "long-task-b002", "long-task-c003"
"""The long rollout, one as long as the peers' smaller size, and one of a few steps."""
OTHERS = 17
FEW = 50
"""Steps of every other rollout."""
RARE, COMMON = "quasar", "corpus"
"""A word that one step in `SELDOM` holds, and one that every step holds."""
SELDOM = 997


def thought(step: int) -> str:
    """What the agent thinks at a step; unlike that of every other step."""
    return f"I think about step {step} and what should come next."


def output(step: int, lines: int) -> str:
    """What its command printed."""
    found = RARE if step % SELDOM == 0 else "nothing"
    return "\n".join(
        f"{step}.{line} read {(step * 31 + line) % 9973} words of the {COMMON}, {found} new"
        for line in range(lines)
    )


def rare(steps: int) -> int:
    """How many of the first `steps` steps hold the rare word."""
    return steps // SELDOM


def other_names() -> list[str]:
    """The rollouts of a few steps, oldest first."""
    return [f"other-task-{number:02}" for number in range(OTHERS)]


def write(path: Path, steps: int, small: int, lines: int) -> HomeBuilder:
    """A home with twenty rollouts: one of `steps` steps, one of `small`, the others of a few."""
    builder = HomeBuilder(path)
    few = dict.fromkeys(other_names(), FEW)
    with builder.bulk():
        for name, count in {**few, SHORT: FEW, PEER: small, LONG: steps}.items():
            builder.start(name, task=name.rpartition("-")[0])
            for step in range(1, count + 1):
                builder.whole(name, step, thought(step), texts=(output(step, lines),))
    return builder


def trajectory(path: Path, steps: int, lines: int) -> Path:
    """The same steps as mini-swe-agent writes them: one JSON file with all messages."""
    messages = [{"role": "system", "content": "You work in a terminal."}]
    for step in range(1, steps + 1):
        action = {"command": "ls"}
        said = f"{thought(step)}\n\n```bash\nls\n```"
        messages.append({"role": "assistant", "content": said, "extra": {"actions": [action]}})
        messages.append({"role": "user", "content": output(step, lines)})
    path.write_text(json.dumps({"messages": messages, "info": {}}))
    return path
