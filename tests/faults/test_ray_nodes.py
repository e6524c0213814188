"""F21: workers on the nodes of a Ray cluster; nodes, actors, workers and the head die.

All nodes are on this machine (`ray.cluster_utils`), so a workspace outlives its node unless the
test takes it away. The package ray comes with the extra `ray`, which `make test` does not install.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from houston_daemon.agent import store_workspace
from tests.faults import workloads
from tests.faults.daemon_under_test import Ground
from tests.faults.final_checks import until_over, wrong
from tests.faults.ray_fleet import Fleet
from tests.support.ray_nodes import RayNodes, actor_of, parent_of
from tests.support.station import alive
from tests.support.terminals import end_terminals

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        yield made
    finally:
        made.close()


def kill_node(fleet: Fleet, _: list[str]) -> list[str]:
    hit = list(fleet.running_on("b"))
    fleet.nodes.kill("b")
    return hit


def kill_actor(fleet: Fleet, _: list[str]) -> list[str]:
    hit = list(fleet.running_on("b"))
    os.kill(actor_of(fleet.worker(hit[0])), signal.SIGKILL)
    return hit


def kill_fork_server(fleet: Fleet, _: list[str]) -> list[str]:
    hit = list(fleet.running_on("b"))
    os.kill(parent_of(fleet.worker(hit[0])), signal.SIGKILL)
    return hit


def kill_worker(fleet: Fleet, rollouts: list[str]) -> list[str]:
    os.kill(fleet.worker(rollouts[0]), signal.SIGKILL)
    return rollouts[:1]


def kill_driver(fleet: Fleet, rollouts: list[str]) -> list[str]:
    (driver,) = fleet.ground.own("service.ray_cluster")
    os.kill(driver, signal.SIGKILL)
    return rollouts


def kill_daemon(fleet: Fleet, rollouts: list[str]) -> list[str]:
    fleet.ground.signal(signal.SIGKILL)
    fleet.ground.ended()
    fleet.ground.started()
    return rollouts


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(kill_node, id="node killed"),
        pytest.param(kill_actor, id="actor killed"),
        pytest.param(kill_fork_server, id="fork server killed"),
        pytest.param(kill_worker, id="worker killed"),
        pytest.param(kill_driver, id="driver killed"),
        pytest.param(kill_daemon, id="daemon killed"),
    ],
)
def test_all_go_on_and_nothing_acked_is_lost(
    fleet: Fleet, fault: Callable[[Fleet, list[str]], list[str]]
) -> None:
    rollouts = fleet.work(workloads.null(fleet.ground, 60, 0.4))
    assert fleet.running_on("a") and fleet.running_on("b"), "both nodes have some"
    leases = {rollout: fleet.lease(rollout) for rollout in rollouts}
    hit = fault(fleet, rollouts)
    assert hit
    until_over(fleet.ground, 300)
    assert {rollout for rollout in rollouts if fleet.lease(rollout) > leases[rollout]} == set(hit)
    assert wrong(fleet.ground) == []


def test_a_lost_node_is_named_with_its_machine(fleet: Fleet) -> None:
    fleet.work(workloads.null(fleet.ground, 60, 0.4))
    node, hit = fleet.node("b"), fleet.running_on("b")
    assert node is not None
    fleet.nodes.kill("b")
    fleet.ground.until(
        lambda: all(f"worker of {rollout}" in fleet.status.troubles for rollout in hit),
        60,
        "the status says why",
    )
    for rollout in hit:
        words = fleet.status.troubles[f"worker of {rollout}"]
        assert f"the node {node.name} on {node.host} was lost" in words


def test_a_workspace_that_was_on_a_lost_node_is_said(fleet: Fleet) -> None:
    """Its disk is taken away, too: then only a person can say what is to become of the rollout."""
    rollouts = fleet.work(workloads.workstation(fleet.ground, 60, 0.4), 4)
    node, hit = fleet.node("b"), fleet.running_on("b")
    assert node is not None and hit
    fleet.nodes.kill("b")
    end_terminals(fleet.ground.folder / "host", hit)  # a machine that is gone keeps none
    for rollout in hit:
        shutil.rmtree(fleet.ground.folder / "host" / "rollouts" / rollout)
    for rollout in hit:
        reason = fleet.ground.until(
            lambda each=rollout: fleet.pause_reason(each), 120, "it waits for a person"
        )
        assert f"It was on {node.host} (node {node.name})" in reason
        assert "is gone" in reason
    others = set(rollouts) - set(hit)
    fleet.ground.until(
        lambda: all(fleet.ground.states()[each] == "finished" for each in others),
        120,
        "those on the other node finish",
    )
    assert wrong(fleet.ground) == []


def test_a_rollout_goes_back_to_the_node_that_has_its_workspace(fleet: Fleet) -> None:
    (rollout,) = fleet.work(workloads.workstation(fleet.ground, 40, 0.4), 1)
    (name,) = [name for name in ("a", "b") if rollout in fleet.running_on(name)]
    for lease in (2, 3):
        os.kill(actor_of(fleet.worker(rollout)), signal.SIGKILL)
        fleet.ground.until(
            lambda n=lease: fleet.lease(rollout) == n and fleet.running_on(name) == (rollout,),
            60,
            "it is back on its node",
        )


ASKS = {
    "CPUs": ("cpus = 64", {"cpus": 64}, "asks for 64 CPUs, more than any node has"),
    "memory": (
        "memory_mb = 900_000",
        {"memory": 900_000 << 20},
        "asks for 0.5 CPUs, 900,000 MB, more than any node has",
    ),
    "a label": (
        "labels = { disk = 'nvme' }",
        {"labels": {"disk": "nvme"}},
        "asks for 0.5 CPUs, disk=nvme, more than any node has",
    ),
}


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_what_asks_for_too_much_waits_and_says_why(
    fleet: Fleet, asks: tuple[str, dict[str, object], str]
) -> None:
    text, offers, reason = asks
    table = f'environment = "null"\n[resources]\n{text}\n'
    script = [{"thought": "x", "calls": [{"name": "noop", "arguments": {"text": "x"}}]}]
    (waits,) = fleet.ground.rollouts(fleet.ground.task("big", table, script))
    fleet.ground.until(
        lambda: fleet.status.unplaced.get(waits, "").startswith(reason), 60, "it is said"
    )
    small = fleet.ground.rollouts(workloads.null(fleet.ground, 5))
    fleet.ground.until(lambda: fleet.ground.states()[small[0]] == "finished", 60, "others run")
    assert fleet.ground.states()[waits] == "queued"
    fleet.nodes.add("big", **offers)  # type: ignore[arg-type]
    until_over(fleet.ground, 60)
    assert fleet.status.unplaced == {}


def test_gpus_are_those_that_ray_gives(fleet: Fleet) -> None:
    """Numbers only: Ray counts what a node says that it has."""
    fleet.nodes.add("gpus", num_gpus=2)
    script = [
        {
            "thought": "x",
            "calls": [workloads.call("run_command", command="echo gpus=$CUDA_VISIBLE_DEVICES")],
        }
    ]
    text = 'gpus = 1\nsandbox = "none"\n'
    first, second = fleet.ground.rollouts(fleet.ground.task("gpu", text, script), 2)
    until_over(fleet.ground, 120)
    seen = {
        number
        for rollout in (first, second)
        for number in "01"
        if fleet.ground.query(
            "SELECT 1 FROM events WHERE rollout = ? AND instr(body, ?)", rollout, f"gpus={number}"
        )
    }
    assert seen and seen <= {"0", "1"}


def test_a_worker_that_hangs_on_a_node_is_killed_there(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, silent_seconds=12.0)
    try:
        (rollout,) = fleet.work(workloads.null(fleet.ground, 40, 0.3), 1)
        hung = fleet.worker(rollout)
        os.kill(hung, signal.SIGSTOP)
        fleet.ground.until(lambda: not alive(hung), 60, "it is killed")
        until_over(fleet.ground, 120)
        assert fleet.lease(rollout) == 2
        assert wrong(fleet.ground) == []
    finally:
        fleet.close()


def test_a_head_that_is_gone_is_said_and_waited_for(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        rollouts = fleet.work(workloads.null(fleet.ground, 60, 0.4), 4)
        port = int(fleet.nodes.address.rpartition(":")[2])
        fleet.nodes.kill_head()
        fleet.ground.until(
            lambda: (
                "does not answer" in fleet.status.troubles.get("Ray cluster", "")
                or "cannot be reached" in fleet.status.troubles.get("Ray cluster", "")
            ),
            180,
            "the status says so",
        )
        assert not {"failed"} & set(fleet.ground.states().values())
        fleet.nodes.close()
        fleet.nodes = RayNodes(fleet.ground.environment, port)
        fleet.nodes.add("c")
        until_over(fleet.ground, 240)
        assert set(fleet.ground.states()) == set(rollouts)
        assert wrong(fleet.ground) == []
    finally:
        fleet.close()


def test_short_rollouts_share_workers_on_nodes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, cpus=1.0, rollouts_per_worker=8)
    try:
        rollouts = fleet.work(workloads.null(fleet.ground, 40, 0.4), 12)
        nodes = [node for node in fleet.status.nodes if node.rollouts]
        assert sum(node.workers for node in nodes) < len(rollouts)
        assert {fleet.lease(rollout) for rollout in rollouts} == {1}
        hit = fleet.running_on("b") or fleet.running_on("a")
        fleet.nodes.kill("b" if fleet.running_on("b") else "a")
        until_over(fleet.ground, 300)
        assert {rollout for rollout in rollouts if fleet.lease(rollout) > 1} == set(hit)
        assert wrong(fleet.ground) == []
    finally:
        fleet.close()


def test_a_lost_node_with_its_disk_goes_on_from_the_store(tmp_path: Path) -> None:
    """Workers on other machines copy their snapshots themselves, for the daemon cannot read them:
    here its process of copies stands still."""
    store = tmp_path / "store"
    fleet = Fleet(tmp_path, over_tcp=True, more=f"[artifacts]\nurl = 'file://{store}'\n")
    ground = fleet.ground
    try:
        ground.until(lambda: any(store.glob("owners/*.json")), 60, "the home has the store")
        (copier,) = ground.own("artifact_copier_child")
        os.kill(copier, signal.SIGSTOP)
        rollouts = fleet.work(workloads.workstation(ground, 60, 1.0), 4)
        ground.until(lambda: all(fleet.steps(each) >= 5 for each in rollouts), 240, "all work")
        hit = fleet.running_on("b")
        assert hit and set(hit) != set(rollouts)
        fleet.nodes.kill("b")
        end_terminals(ground.folder / "host", list(hit))
        for rollout in hit:
            shutil.rmtree(ground.folder / "host" / "rollouts" / rollout)
        until_over(ground, 400)
        os.kill(copier, signal.SIGCONT)
        assert {ground.states()[each] for each in rollouts} == {"finished"}
        for rollout in hit:
            log = ground.folder / "host/rollouts" / rollout / "workspace/log.txt"
            numbers = list(map(int, log.read_text().split()))
            assert numbers == sorted(set(numbers)), "no call ran twice"
            assert len(numbers) >= 60 - store_workspace.MAX_SNAPSHOT_LAG - 1
        assert wrong(ground) == []
    finally:
        fleet.close()


def test_a_cluster_of_this_machine_ends_with_its_daemon(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "ground", "[ray]\naddress = 'local'\ncpus = 0.1\n")
    try:
        ground.started()
        rollouts = ground.rollouts(workloads.null(ground, 30, 0.3), 3)
        ground.until(
            lambda: all(steps for (steps,) in ground.query("SELECT steps FROM rollouts")), 120, "go"
        )
        ground.signal(signal.SIGKILL)
        ground.ended()
        ground.until(lambda: not ground.own("/ray/"), 30, "Ray has ended")
        ground.started()
        until_over(ground, 240)
        assert set(ground.states()) == set(rollouts)
        assert wrong(ground) == []
        ground.stop()
        ground.until(lambda: not ground.own("/ray/"), 30, "Ray has ended")
    finally:
        ground.close()
