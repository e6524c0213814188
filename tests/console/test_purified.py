"""A purified step in the trajectory: a mark on its line, every attempt when it is unfolded."""

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import ObservationBody, ToolCall, ToolResult
from houston_shared.store.event_bodies import StoredObservation, StoredSample
from tests.console.conftest import Sit
from tests.console.home_builder import HomeBuilder
from tests.support.written_home import sample, stored


def attempt(
    builder: HomeBuilder, rollout: str, step: int, number: int, thought: str, code: str, error: str,
    **fields: object,
) -> None:  # fmt: skip
    """One attempt at a step: what was said, and what its call gave; an empty error is none."""
    call = ToolCall(id=f"{step}.0.{number}", name="python", arguments={"code": code})
    body = sample(thought, calls=(call,), **fields)
    part = f"lookahead.{number - 1}" if body.role == "lookahead" else "sample"
    key = EventKey(rollout, step, number, part)
    builder.event(key, "sample", stored(StoredSample, body, active_us=step))
    result = ToolResult(call=call, kind="python", success=not error, text=error or "6", seconds=0.1)
    builder.event(EventKey(rollout, step, number, "call.0"), "result", result)


def purified_step(builder: HomeBuilder, rollout: str, step: int) -> None:
    """The first call misspells a name, the correction repairs it."""
    wrong, right = "print(totl([1, 2, 3]))", "print(sum([1, 2, 3]))"
    error = "Traceback (most recent call last):\nNameError: name 'totl' is not defined"
    attempt(builder, rollout, step, 1, "I add them up.", wrong, error)
    attempt(builder, rollout, step, 2, "It is called sum.", right, "", role="lookahead")
    story = {"mode": "shallow", "similarity": 0.93, "attempts": 2, "from_attempt": 2}
    attempt(
        builder, rollout, step, 3, "I add them up.", right, "",
        engine="purification", parameters={"purification": story},
    )  # fmt: skip
    closing = stored(StoredObservation, ObservationBody(tail="[step 2 of 9]"), active_us=step)
    builder.event(EventKey(rollout, step, 3, "observation"), "observation", closing)


async def test_a_purified_step_shows_every_attempt(builder: HomeBuilder, sit: Sit) -> None:
    builder.start("r-one", "alpha")
    builder.whole("r-one", 1, "First.")
    purified_step(builder, "r-one", 2)
    async with sit(builder.home, "r-one") as seat:
        await seat.press("2")
        folded = next(one for one in seat.lines() if "I add them up." in one)
        assert "↻" in folded and "✗" not in folded, "it came right"
        assert "NameError" not in seat.text()
        await seat.press("enter")
        await seat.until(lambda: "purified: shallow, similarity 0.93" in seat.text())
        shown = seat.text()
        assert shown.index("print(sum(") < shown.index("attempt 1, as first sampled")
        assert "NameError: name 'totl'" in shown and "attempt 2, a correction" in shown
