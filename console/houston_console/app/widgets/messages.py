"""What any area may have to tell the app."""

from textual.message import Message

from houston_shared.errors import HoustonError


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
