"""What a step cost stands in the last line of the step, and nowhere without a price."""

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import ObservationBody
from houston_shared.store.event_bodies import StoredObservation
from tests.console.conftest import Sit
from tests.console.home_builder import HomeBuilder
from tests.console.test_purified import attempt
from tests.support.written_home import stored


@pytest.mark.parametrize("cost", [0.0123, None], ids=["with a price", "without one"])
async def test_the_last_line_of_a_step_says_its_cost(
    builder: HomeBuilder, sit: Sit, cost: float | None
) -> None:
    builder.start("r-one", "alpha")
    attempt(builder, "r-one", 1, 1, "I add them up.", "print(6)", "", prompt_tokens=900, cost=cost)
    closing = stored(StoredObservation, ObservationBody(tail="[step 1 of 9]"), active_us=1)
    builder.event(EventKey("r-one", 1, 1, "observation"), "observation", closing)
    async with sit(builder.home, "r-one") as seat:
        await seat.press("2")
        await seat.press("enter")
        await seat.until(lambda: "900 prompt tokens" in seat.text())
        assert ("cost 0.0123" in seat.text()) == (cost is not None)
