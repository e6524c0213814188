"""The actions of python: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.python.running import MOST_CODE


class PythonAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of python."""

    family: ClassVar[str] = "python"


class RunPython(PythonAction, frozen=True, kw_only=True):
    """Run Python code and see what it prints; each call starts anew and remembers nothing."""

    name: ClassVar[str] = "python"
    code: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MOST_CODE,
            description="The whole program; the value of a bare last expression is shown.",
        ),
    ]


class Finish(PythonAction, frozen=True, kw_only=True):
    """End the task with the answer."""

    name: ClassVar[str] = "finish"
    answer: Annotated[str, Meta(max_length=1_000, description="The answer and nothing else.")] = ""


PYTHON_ACTIONS: tuple[type[PythonAction], ...] = (RunPython, Finish)
