"""What guidance, pause, cancel and drain mean for whatever the loop does at the moment.

Pure decisions over the control state (DESIGN §5): `next` waits for the observation, `wake` also
ends sleeps and waits, `interrupt` also stops the sample in flight and the waiting of any call.
"""

from typing import Literal

from houston_daemon.environments.protocol import StopReason
from houston_shared.wire import Control

Departure = Literal["drain", "cancel", "lease", "ended"]
INTERRUPTED = "[interrupted by a person]"
NOT_RUN = "[not run: a person's message came first]"


class Leaving(Exception):
    """The worker leaves the rollout here; nothing acked is undone.

    reason: `drain` (the daemon stops), `cancel`, `lease` (a successor has the rollout), `ended`.
    """

    def __init__(self, reason: Departure) -> None:
        super().__init__(reason)
        self.reason: Departure = reason


def leave(control: Control) -> None:
    """Raise Leaving when the worker should go."""
    if control.cancel:
        raise Leaving("cancel")
    if control.drain:
        raise Leaving("drain")


def stops_sample(control: Control) -> bool:
    """Whether the sample in flight should be cut."""
    return control.waiting.urgency == "interrupt"


def stops_call(control: Control) -> StopReason:
    """Why a running call's waiting should end; empty when it should go on."""
    urgency = control.waiting.urgency
    return urgency if urgency in ("wake", "interrupt") else ""
