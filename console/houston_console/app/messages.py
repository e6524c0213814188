"""What any area may have to tell the app."""

from collections.abc import Awaitable, Callable

from textual.message import Message
from textual.widget import Widget

from houston_shared.errors import HoustonError


def say(widget: Widget, message: Message) -> None:
    """Post a message as the widget's own, whoever called it.

    Textual takes the pump that runs now for the sender, and does not let a message rise to its
    sender: what an area says while the app calls it would never reach the app.
    """
    widget.post_message(message.set_sender(widget))


class Failed(Message):
    """Something could not be read or done."""

    def __init__(self, problem: HoustonError) -> None:
        super().__init__()
        self.problem = problem


async def guarded(widget: Widget, work: Awaitable[None]) -> None:
    """Do what waits for the daemon or the database; tell what went wrong as the widget's word."""
    try:
        await work
    except HoustonError as problem:
        say(widget, Failed(problem))


class Told(Message):
    """Something to say to the person at the screen."""

    def __init__(self, text: str, good: bool = False) -> None:
        super().__init__()
        self.text = text
        self.good = good


class GoTo(Message):
    """Show a step of the trajectory, unfolded; of another rollout where one is named."""

    def __init__(self, step: int, rollout: str = "") -> None:
        super().__init__()
        self.step = step
        self.rollout = rollout


class GoToLine(Message):
    """Show a line of what a terminal printed, and the step that did."""

    def __init__(self, rollout: str, step: int, terminal: str, byte: int) -> None:
        """step: 0 for none. byte: where in the terminal's log the line begins."""
        super().__init__()
        self.rollout, self.step = rollout, step
        self.terminal, self.byte = terminal, byte


class OpenEye(Message):
    """Show exactly what the model was given at a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


class AskLine(Message):
    """Have the person type one line, at the lower edge of the trajectory."""

    def __init__(
        self, what: str, answer: Callable[[str], Awaitable[None]], value: str = ""
    ) -> None:
        """answer: given what was typed, without spaces around it; may raise HoustonError."""
        super().__init__()
        self.what = what
        self.answer = answer
        self.value = value
