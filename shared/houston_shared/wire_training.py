"""What judging and training programs say to the recorder (see `wire`).

They speak as the person who runs them: who that is, is the kernel's word, like for any command.
"""

from typing import Literal

from houston_shared.wire_operators import FromPerson
from houston_shared.wire_people import JudgedSteps


class StoreVerdicts(FromPerson, frozen=True, kw_only=True):
    """What rules or a judge say of ranges of steps; each stands beside what people said.

    A new run says only what differs from what its source said before. `undecided` takes a verdict
    of this source back; one of another source is never touched.
    """

    request: str
    """Idempotency key, made by the sender."""
    rollout: str
    source: Literal["rule", "judge"]
    by: str
    """Which: `rules`, or `judge:` and the engine."""
    steps: tuple[JudgedSteps, ...]
    """Reasons of rules name them with their versions: `error@1: …; blind_edit@1: …`."""
