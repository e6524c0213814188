"""Rollouts that share a connection beat in one message, and each goes by its own answer."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from houston_daemon.agent.recorder_client import IngestConnection, IngestSocket, RecorderClient
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.worker_control import ControlState, WorkerExit
from houston_shared import wire
from houston_shared.recorder_endpoint import parse_endpoint
from tests.support.recorder_client import Station, until

TOGETHER = 3


class Sharing:
    """Rollouts of one process, each with its heartbeats."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.rollouts = station.person().start(TOGETHER)
        self.connection = IngestConnection(parse_endpoint(station.home.socket("ingest")))
        self._exchange, self.sent = self.connection.exchange, list[object]()
        self.connection.exchange = self._noted  # type: ignore[method-assign]
        self.lines = [self._line(rollout) for rollout in self.rollouts]
        self.beating = [asyncio.create_task(line.send_heartbeats()) for line in self.lines]

    def _line(self, rollout: str) -> RecorderClient:
        lease, control = self.station.recorder.assign(rollout).lease, ControlState()
        client = IngestSocket(self.connection, control, rollout)
        return RecorderClient(client, control, ActiveClock(0), rollout, lease)

    def heard(self) -> int:
        """Messages that were answered."""
        return self.station.recorder.status(60.0).acked

    async def until(self, what: Callable[[], object]) -> None:
        assert await asyncio.to_thread(until, what)

    async def _noted(self, number: bytes, body: bytes) -> wire.IngestReply:
        self.sent.append(wire.ingest_request_decoder.decode(body))
        return await self._exchange(number, body)

    async def close(self) -> None:
        for task in self.beating:
            task.cancel()
        await asyncio.gather(*self.beating, return_exceptions=True)
        await self.connection.close()


async def _one_message_for_all(shared: Sharing) -> None:
    for line in shared.lines:
        line.activity = f"of {line.rollout}"
    stored = "SELECT count(*) FROM rollouts WHERE activity = 'of ' || id"
    await shared.until(lambda: shared.station.query(stored) == [(TOGETHER,)])
    assert all(
        isinstance(message, wire.Heartbeats)
        and [beat.rollout for beat in message.beats] == shared.rollouts
        for message in shared.sent
    )


async def _the_status_says_what_goes_wrong(shared: Sharing) -> None:
    def troubles() -> dict[str, str]:
        said = shared.station.recorder.status(60.0).troubles
        return {names: text for names, text in said.items() if "store" in text}

    first, *others = shared.lines
    first.trouble = "the store refuses it"
    await shared.until(lambda: troubles() == {first.rollout: "the store refuses it"})
    for line in others:
        line.trouble = "the store refuses it"
    names = ", ".join(sorted(shared.rollouts))
    await shared.until(lambda: troubles() == {names: "the store refuses it"})
    for line in shared.lines:
        line.trouble = ""
    await shared.until(lambda: not troubles())


async def _who_is_replaced_leaves_alone(shared: Sharing) -> None:
    shared.station.recorder.assign(shared.rollouts[1])
    with pytest.raises(WorkerExit) as leaving:
        await asyncio.wait_for(shared.beating[1], 60)
    assert leaving.value.reason == "lease"
    before = shared.heard()
    await shared.until(lambda: shared.heard() > before)
    assert not shared.beating[0].done()
    assert not shared.beating[2].done()


async def _each_hears_its_own_control_state(shared: Sharing) -> None:
    person = shared.station.person()
    person.ask(wire.Steer(rollout=shared.rollouts[0], action="pause"))
    person.guide(shared.rollouts[2], "Look again.")
    states = [line.control for line in shared.lines]
    await shared.until(lambda: states[0].current.pause and states[2].current.waiting.count)
    assert states[1].current == wire.WorkerControl()


async def _who_leaves_and_who_comes(shared: Sharing) -> None:
    for task in shared.beating:
        task.cancel()
    await asyncio.wait(shared.beating)
    before = shared.heard()
    shared.beating = [asyncio.create_task(shared.lines[0].send_heartbeats())]
    await shared.until(lambda: shared.heard() > before)


async def _what_one_cannot_say_ends_no_other(shared: Sharing) -> None:
    def broken() -> dict[str, wire.ReplicaUse]:
        raise ValueError("of this one")

    shared.lines[0].replica_uses = broken
    with pytest.raises(ValueError, match="of this one"):
        await asyncio.wait_for(shared.beating[0], 60)
    before = shared.heard()
    await shared.until(lambda: shared.heard() > before)
    assert not shared.beating[1].done()


SCENARIOS = {
    "one message for all": _one_message_for_all,
    "the status says what goes wrong": _the_status_says_what_goes_wrong,
    "who is replaced leaves alone": _who_is_replaced_leaves_alone,
    "each hears its own control state": _each_hears_its_own_control_state,
    "who comes after all have left beats again": _who_leaves_and_who_comes,
    "what one cannot say ends no other": _what_one_cannot_say_ends_no_other,
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_rollouts_that_share_a_connection(
    station: Station, scenario: Callable[[Sharing], Awaitable[None]]
) -> None:
    async def run() -> None:
        shared = Sharing(station)
        try:
            await scenario(shared)
        finally:
            await shared.close()

    asyncio.run(run())
