"""A step of a flow in the trajectory: its action, and what the verifier said of it."""

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import ObservationBody, Verification
from houston_shared.store.event_bodies import StoredObservation
from tests.console.conftest import Sit
from tests.console.home_builder import HomeBuilder
from tests.console.test_purified import attempt
from tests.support.written_home import stored


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (Verification(True, "it is 6"), "verifier: answered: it is 6"),
        (Verification(False, "the sum is missing"), "verifier: not answered yet: the sum is"),
        (Verification(unreadable="it is no JSON object"), "verifier: not read (it is no JSON"),
        (None, ""),
    ],
)
async def test_a_step_of_a_flow_shows_what_its_verifier_said(
    builder: HomeBuilder, sit: Sit, said: Verification | None, shown: str
) -> None:
    builder.start("r-one", "alpha")
    attempt(builder, "r-one", 1, 1, "I add them up.", "print(6)", "", role="planner")
    observation = ObservationBody(tail="[step 1 of 9]", verification=said)
    closing = stored(StoredObservation, observation, active_us=1)
    builder.event(EventKey("r-one", 1, 1, "observation"), "observation", closing)
    async with sit(builder.home, "r-one") as seat:
        await seat.press("2")
        await seat.press("enter")
        await seat.until(lambda: "print(6)" in seat.text() and shown in seat.text())
        assert ("verifier" in seat.text()) == bool(shown)
