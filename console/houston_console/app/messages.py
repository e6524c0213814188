"""What any area may have to tell the app."""

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


class Told(Message):
    """Something to say to the person at the screen."""

    def __init__(self, text: str, good: bool = False) -> None:
        super().__init__()
        self.text = text
        self.good = good


class GoTo(Message):
    """Show a step of the trajectory, unfolded."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
