"""A scripted agent that does what people say at once, and otherwise goes on with its own plan.

It samples the rollouts from which obedience is learned. It is given the orders with the calls that
follow them; it reads no language. Its own plan follows from a rollout's place and the step, so that
no two rollouts are alike and another run does the same.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from houston_daemon.training.experiment.endpoint import Conversation, Turn
from houston_daemon.training.experiment.orders import Order, Vocabulary

_MAIN = ("path", "file_path", "file_name", "dir_path", "command", "search_term")
"""The argument that names what a call is about."""


class Obedient:
    """See the module.

    place: what tells a conversation's rollout from others, the same in another run. seconds: how
    long each sample takes, so that people can speak between.
    """

    def __init__(
        self,
        orders: Iterable[Order],
        words: Vocabulary,
        steps: int,
        place: Callable[[Conversation], str],
        seconds: float = 0.0,
    ) -> None:
        self._calls = {order.text: order for order in orders}
        self._words = words
        self._steps = steps
        self._place = place
        self._seconds = seconds

    def __call__(self, seen: Conversation) -> Turn:
        """The next step."""
        time.sleep(self._seconds)
        for text in reversed(seen.heard):
            if order := self._calls.get(text):
                said = f"The person comes first: {_named(order.tool, order.arguments)}."
                return Turn(said, order.tool, order.arguments)
        if seen.step >= self._steps:
            return Turn("All was looked at.", "finish", {})
        return self._own(seen)

    def _own(self, seen: Conversation) -> Turn:
        """Its own plan: a look at the workspace first, then at this and that."""
        if seen.step == 1:
            return Turn("I begin with an overview.", "list_files", {"path": "."})
        source = random.Random(f"{self._place(seen)}:{seen.step}")
        name = source.choice(self._words.names)
        folder, word = source.choice(self._words.folders), source.choice(self._words.words)
        name_call: tuple[str, Mapping[str, Any]] = source.choice(
            (
                ("list_files", {"path": "."}),
                ("run_command", {"command": f"du -sh {folder}"}),
                ("run_command", {"command": f"grep -rl {word} ."}),
                ("think", {"thought": f"{name} may say more about {word}."}),
            )
        )
        return Turn("I go on with my own plan.", *name_call)


def _named(tool: str, arguments: Mapping[str, Any]) -> str:
    main = next((str(arguments[key]) for key in _MAIN if key in arguments), "")
    return f"{tool} {main}".strip()
