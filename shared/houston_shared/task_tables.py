"""Tables of the task file that say how work is scored, and what an agent is given beside its
workspace.

They are read with the rest of the file (`task`), which checks what they name.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

from houston_shared.toml_file import Settings

Positive = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
MountName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$")]
DATA = "/data"
"""Where `[data.mounts]` lie for the agent and its evaluator."""
Domain = Literal[
    "",
    "data-construction",
    "data-filtering",
    "data-augmentation",
    "loss-design",
    "reward-design",
    "scaffold-construction",
]


class Evaluate(Settings, frozen=True):
    """How the workspace is scored, 0 to 100: the command runs in the task folder, which it sees
    read-only like the workspace (`$WORKSPACE`), and prints one JSON object.

    Without `baseline` and `reference` that object has `overall_score`, 0 to 100. With both it has
    `raw_score` in units of its own, and the score is
    100 × (raw_score − baseline) / (reference − baseline), not below 0 and not above 100; where less
    is better, `reference` is the smaller one. Other members are shown to the agent as metrics.

    Nothing is scored, and no submission used, while links of the workspace lead to the task folder
    or into `/proc`: an evaluator that follows them would read its own solutions. Sessions go on
    while it runs and could lay such a link then: open with `O_NOFOLLOW` what has the form of the
    solutions.
    """

    command: str = ""
    """Shell command in the task folder; prints the object and exits with 0."""
    seconds: Seconds = 60.0
    """Time limit of one evaluation; as much active time is reserved for a last one."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1
    """Evaluations of this task that may run at once on a host."""
    host: str = ""
    """The one of `hosts` on which it runs and whose workspace it scores; empty for the first."""
    required: tuple[str, ...] = ()
    """Files or folders of the workspace that must be there, as more than links that lead out of it;
    without them nothing is scored, no submission is used, and the agent is told which are missing.
    """
    format: str = ""
    """Shell command in the task folder that runs before `command`, shut in like it and within
    `seconds`, too. When it exits with another code than 0 nothing is scored and no submission is
    used; what it prints is shown to the agent, so it must say nothing of solutions."""
    baseline: Finite | None = None
    """`raw_score` of the baseline: 0 points."""
    reference: Finite | None = None
    """`raw_score` of the reference solution: 100 points."""


def trouble(evaluate: Evaluate, hosts: Sequence[str]) -> str:
    """What no value of one key alone can say, as a sentence; empty where nothing is wrong."""
    if evaluate.host and evaluate.host not in hosts:
        return f"`evaluate.host` is {evaluate.host!r}, none of `hosts` ({', '.join(hosts)})."
    ends = (evaluate.baseline, evaluate.reference)
    if (ends[0] is None) != (ends[1] is None) or (ends[0] is not None and ends[0] == ends[1]):
        return (
            "`evaluate.baseline` and `evaluate.reference` are given together, as two different"
            " numbers, or not at all."
        )
    for path in evaluate.required:
        if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            return f"`evaluate.required` names {path!r}, which is no path in the workspace."
    if not evaluate.command and (evaluate.required or evaluate.format or ends[0] is not None):
        return "[evaluate] has no `command`, so nothing is scored."
    return ""


class Data(Settings, frozen=True):
    """What is mapped read-only beside the workspace."""

    mounts: dict[MountName, str] = {}
    """`NAME = "folder or file"`, absolute or beside the task file: the agent and its evaluator see
    it at `/data/NAME`. It needs the sandbox."""

    def trouble(self, sandbox: str) -> str:
        """Why it cannot be mapped in this kind of sandbox, as a sentence; empty where it can."""
        none = self.mounts and sandbox == "none"
        return "`data.mounts` needs the sandbox, which is `none`." if none else ""


class Hints(Settings, frozen=True):
    """Help with the task that agents go without unless somebody asks for it. No action asks for it:
    an agent has it from the first step, as a part of its instructions, or not at all."""

    text: str = ""
    """Follows the instructions where hints are shown."""
    shown: bool = False
    """Show them to every rollout; `houston rollout start --hints` shows them to some."""
