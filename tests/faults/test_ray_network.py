"""Workers on the nodes of a Ray cluster whose lines to the recorder, or to Ray, go wrong.

The package ray comes with the extra `ray`, which `make test` does not install.
`HOUSTON_CUT_SECONDS` makes the cut of a link shorter; below some 15 s TCP itself gets over it.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import workloads
from tests.faults.daemon_under_test import Speaker
from tests.faults.final_checks import until_over, wrong
from tests.faults.ray_fleet import Fleet, Links
from tests.support.lossy_link import LossyLink, needs_links
from tests.support.station import command_line

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RELAY_CUT_SECONDS, STEPS = 8.0, 40
"""Of a line that is cut, and how many steps a rollout has in which that happens."""
CUT_SECONDS = float(os.environ.get("HOUSTON_CUT_SECONDS", "60"))
DELAY, LOSS = 0.04, 0.02
"""Of a link: seconds each way, and share of packets."""
NEWEST = "SELECT max(seq) FROM events WHERE part IS NOT NULL"
"""The last event that a worker said."""
HEARD = "SELECT 1 FROM guidance WHERE delivered_step IS NOT NULL"
TCP_ESTABLISHED = "01"
"""As `/proc/net/tcp` has it."""


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Fleet]:
    """Nodes that reach the recorder over TCP only: the socket of this machine is taken away."""
    made = Fleet(tmp_path, over_tcp=True)
    try:
        Path(made.ground.home.socket("ingest").removeprefix("ipc://")).unlink()
        yield made
    finally:
        made.close()


def speaks_with(pid: int) -> set[int]:
    """Ports that a process has a TCP connection to."""
    its = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return {
        int(words[2].rpartition(":")[2], 16)
        for words in map(str.split, lines)
        if words[3] == TCP_ESTABLISHED and f"socket:[{words[9]}]" in its
    }


def test_workers_on_nodes_reach_the_recorder_over_tcp(far: Fleet) -> None:
    relay = far.relay
    assert relay is not None
    rollouts = far.work(workloads.null(far.ground, 40, 0.4), 4)
    assert far.running_on("a") and far.running_on("b"), "both nodes have some"
    for rollout in rollouts:
        worker = far.worker(rollout)
        assert "--endpoint ipc://" not in command_line(Path(f"/proc/{worker}"))
        assert relay.port in speaks_with(worker)
    until_over(far.ground, 300)
    assert relay.connections >= len(rollouts)
    assert {far.lease(rollout) for rollout in rollouts} == {1}
    assert wrong(far.ground) == []


def test_a_line_to_the_nodes_that_is_cut_costs_that_time_and_nothing_else(far: Fleet) -> None:
    relay, ground = far.relay, far.ground
    assert relay is not None
    rollouts = far.work(workloads.workstation(ground, STEPS, 0.4), 4)
    assert far.running_on("a") and far.running_on("b"), "both nodes have some"
    anna = Speaker(ground, "anna", 0.5)
    relay.cut()
    time.sleep(2)  # what was on its way is stored
    (before,) = ground.query(NEWEST)
    connections = relay.connections
    anna.rollouts = rollouts
    anna.start()
    time.sleep(RELAY_CUT_SECONDS)
    anna.stop()
    assert ground.query(NEWEST) == [before], "nothing passed"
    relay.heal()
    until_over(ground, 300)
    assert relay.connections >= connections + len(rollouts)
    assert {far.lease(rollout) for rollout in rollouts} == {1}, "each has one worker"
    assert anna.spoken and len(ground.query(HEARD)) == len(anna.spoken)
    numbers = [str(number) for number in range(1, STEPS + 1)]
    for rollout in rollouts:
        log = ground.folder / "host/rollouts" / rollout / "workspace/log.txt"
        assert log.read_text().split() == numbers, "no call ran twice"
    assert wrong(ground, anna) == []


@pytest.fixture
def links() -> Iterator[Links]:
    """Ray's link only delays; the recorder's loses packets, too."""
    to_ray = LossyLink(DELAY, 0.0)
    try:
        to_recorder = LossyLink(DELAY, LOSS, subnet=78, namespace=to_ray.namespace)
        yield Links(to_ray, to_recorder)
        to_recorder.close()
    finally:
        to_ray.close()


@needs_links
def test_a_node_cut_off_from_the_recorder_for_a_minute_goes_on(
    tmp_path: Path, links: Links
) -> None:
    """Ray still reaches the node, so nobody takes its workers for lost."""
    fleet = Fleet(tmp_path, links=links)
    ground = fleet.ground
    try:
        rollouts = fleet.work(workloads.workstation(ground, STEPS, 1.0), 4)
        behind = fleet.running_on("b")
        assert behind and set(behind) != set(rollouts), "both nodes have some"
        anna = Speaker(ground, "anna", 2.0)
        newest = f"{NEWEST} AND rollout IN ({', '.join(repr(each) for each in behind)})"
        links.recorder.cut()
        time.sleep(3)  # what was on its way is stored
        before, others = ground.query(newest), ground.query(NEWEST)
        anna.rollouts = list(behind)
        anna.start()
        time.sleep(CUT_SECONDS)
        anna.stop()
        assert ground.query(newest) == before, "nothing passed"
        assert ground.query(NEWEST) > others, "the other node went on"
        links.recorder.heal()
        until_over(ground, 300)
        assert {fleet.lease(rollout) for rollout in rollouts} == {1}, "each has one worker"
        assert anna.spoken and len(ground.query(HEARD)) == len(anna.spoken)
        numbers = [str(number) for number in range(1, STEPS + 1)]
        for rollout in rollouts:
            log = ground.folder / "host/rollouts" / rollout / "workspace/log.txt"
            assert log.read_text().split() == numbers, "no call ran twice"
        assert links.recorder.lost > 0
        assert wrong(ground, anna) == []
    finally:
        fleet.close()


@needs_links
def test_rollouts_of_a_node_that_is_cut_off_go_on_elsewhere(tmp_path: Path, links: Links) -> None:
    """Its workers live on for a while and are fenced off: nothing that they say counts."""
    fleet = Fleet(tmp_path, links=links)
    ground = fleet.ground
    try:
        rollouts = fleet.work(workloads.null(ground, 150, 0.5), 4)
        behind = fleet.running_on("b")
        assert behind and set(behind) != set(rollouts), "both nodes have some"
        anna = Speaker(ground, "anna", 1.0)
        anna.rollouts = list(behind)
        anna.start()
        links.ray.cut()
        links.recorder.cut()
        ground.until(
            lambda: all(fleet.lease(each) > 1 for each in behind), 120, "successors have begun"
        )
        links.recorder.heal()  # before Ray: a worker that still lives can be heard again
        time.sleep(5)  # for what such a worker has to say
        anna.stop()
        links.ray.heal()
        until_over(ground, 300)
        assert {each for each in rollouts if fleet.lease(each) > 1} == set(behind)
        assert anna.spoken and len(ground.query(HEARD)) == len(anna.spoken)
        assert wrong(ground, anna) == []
    finally:
        fleet.close()
