"""What a simulator answers, checked; it is a user's program, so every member may be missing."""

from typing import Annotated, Any

import msgspec

_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number that the journal can hold."""


class Tool(msgspec.Struct, frozen=True):
    """A tool as the simulator describes it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON schema of the arguments object."""


class Reset(msgspec.Struct, frozen=True):
    """The answer to `/reset`."""

    text: str = ""
    """What the agent sees first."""
    tools: tuple[Tool, ...] = ()
    """Empty for one tool `act` with a text."""
    steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Actions that the simulator has done in this session already."""
    repeatable: bool = False
    """A step that is sent again under the same key is answered again and not done again."""
    replayable: bool = False
    """The same seed and the same actions always lead to the same state."""


class Step(msgspec.Struct, frozen=True):
    """The answer to `/step`."""

    text: str
    success: bool = True
    done: bool = False
    fields: dict[str, bool | _Whole | float | str] = {}
    """Anything that rules and exports may read."""


class Score(msgspec.Struct, frozen=True):
    """The answer to `/score`."""

    overall_score: Annotated[float, msgspec.Meta(ge=0, le=100)]


class Problem(msgspec.Struct, frozen=True):
    """The body of an answer with a status from 400 on."""

    error: str = ""
