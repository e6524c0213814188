"""What a worker asks of a node, and why one waits, in words; without the package ray."""

import socket
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from houston_daemon.service import ray_spawner
from houston_daemon.service.ray_cluster import ClusterLine, _Place
from houston_daemon.service.ray_messages import ClusterNode, ClusterSettings, PlaceRequest
from houston_daemon.service.ray_placement import waiting_reason
from houston_daemon.service.ray_spawner import MEBIBYTE, place_request
from houston_shared.node_places import NodePlace, read_node_places
from houston_shared.records import RolloutSpec, TaskRecord
from tests.support.station import Station
from tests.support.written_home import WrittenHome

SMALL = ClusterNode("aaaaaaaa1", "one", True, cpus=4, memory=8_000 * MEBIBYTE)
LARGE = ClusterNode(
    "bbbbbbbb2", "two", True, cpus=16, memory=64_000 * MEBIBYTE, gpus=2, labels={"zone": "b"}
)
LOST = ClusterNode("cccccccc3", "three", False, cpus=64, memory=1 << 40)
FREE = {"CPU": 1.5, "memory": float(2_000 * MEBIBYTE)}


def spec(table: str, gpus: Mapping[str, int] = {}) -> RolloutSpec:
    text = f'name = "t"\ninstructions = "x"\n{table}'
    task = TaskRecord(name="t", folder="/t", definition=text, instructions="x")
    return RolloutSpec(rollout="r", task=task, engine="e", engine_settings={}, gpus=dict(gpus))


@pytest.mark.parametrize(
    ("table", "schedules_gpus", "asked"),
    [
        pytest.param("", True, PlaceRequest("r", cpus=0.5), id="nothing"),
        pytest.param("[resources]\ncpus = 0", True, PlaceRequest("r"), id="no CPU at all"),
        pytest.param("[resources]\ncpus = 2.5", True, PlaceRequest("r", cpus=2.5), id="CPUs"),
        pytest.param(
            "[sandbox]\nmemory_mb = 100",
            True,
            PlaceRequest("r", cpus=0.5, memory=100 * MEBIBYTE),
            id="the memory of its sandbox",
        ),
        pytest.param(
            "[resources]\nmemory_mb = 300\n[sandbox]\nmemory_mb = 100",
            True,
            PlaceRequest("r", cpus=0.5, memory=300 * MEBIBYTE),
            id="memory",
        ),
        pytest.param(
            "[resources]\nlabels = { zone = 'b' }",
            True,
            PlaceRequest("r", cpus=0.5, labels={"zone": "b"}),
            id="a label",
        ),
    ],
)
def test_a_worker_asks_for_what_its_task_says(
    table: str, schedules_gpus: bool, asked: PlaceRequest
) -> None:
    assert place_request(spec(table), 0.5, schedules_gpus) == asked


def test_gpus_of_its_own_machine_are_asked_of_a_cluster_that_gives_them() -> None:
    wanted = spec("gpus = 2", {"local": 2, "elsewhere": 1})
    assert place_request(wanted, 1.0, schedules_gpus=True).gpus == 2
    assert place_request(wanted, 1.0, schedules_gpus=False).gpus == 0


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        pytest.param(
            PlaceRequest("r", cpus=32),
            "asks for 32 CPUs, more than any node has (aaaaaaaa: 4 CPUs, 8,000 MB; bbbbbbbb: 16"
            " CPUs, 64,000 MB, 2 GPUs, zone=b)",
            id="more than the largest, since a lost node counts for nothing",
        ),
        pytest.param(
            PlaceRequest("r", cpus=8, labels={"zone": "a"}),
            "asks for 8 CPUs, zone=a, more than any node has",
            id="a label that no node has",
        ),
        pytest.param(
            PlaceRequest("r", cpus=2, gpus=1),
            "waits for 2 CPUs, 1 GPU on one node; free in the whole cluster: 1.5 CPUs, 0 GPUs",
            id="CPUs that are taken",
        ),
        pytest.param(
            PlaceRequest("r", cpus=1, memory=4_000 * MEBIBYTE),
            "waits for 1 CPU, 4,000 MB on one node; free in the whole cluster: 1.5 CPUs, 2,000 MB",
            id="memory that is taken",
        ),
        pytest.param(
            PlaceRequest("r", cpus=1),
            "waits for Ray to place it; asks for 1 CPU",
            id="nothing but its start",
        ),
    ],
)
def test_why_one_waits(request_: PlaceRequest, reason: str) -> None:
    assert waiting_reason(request_, [SMALL, LARGE, LOST], FREE).startswith(reason)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        pytest.param("b", True, id="the value"),
        pytest.param("a", False, id="another"),
        pytest.param("!a", True, id="any but another"),
        pytest.param("!b", False, id="any but the value"),
        pytest.param("in(a, b)", True, id="one of some"),
        pytest.param("!in(a, b)", False, id="none of some"),
    ],
)
def test_labels_are_read_as_ray_reads_them(wanted: str, fits: bool) -> None:
    request = PlaceRequest("r", labels={"zone": wanted})
    assert waiting_reason(request, [LARGE], FREE).startswith("asks") is not fits


def test_without_the_package_one_sentence_says_what_to_install(station: Station) -> None:
    """A package that is not installed, for every process of the station."""
    hidden = Path(station.folder) / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['ray'] = None\n")
    station.environment["PYTHONPATH"] = ":".join([str(hidden), *filter(None, sys.path)])
    station.environment["HOUSTON__RAY__ADDRESS"] = "auto"
    done = station.run("daemon", "start", code=78)
    assert "`[ray] address` needs the package ray, which is not installed." in done.stderr
    assert "pip install 'houston-agents[ray]'" in done.stderr
    assert "Traceback" not in done.stderr


HERE = ClusterNode("dddddddd4", socket.gethostname(), True, cpus=2)


@pytest.mark.parametrize(
    ("is_local_only", "places"),
    [
        pytest.param(False, [LARGE, LARGE, LARGE, LARGE, SMALL], id="by processors"),
        pytest.param(True, [HERE, HERE], id="on this machine, where workers reach nothing else"),
    ],
)
async def test_places_are_spread_over_nodes_that_workers_may_be_on(
    is_local_only: bool, places: list[ClusterNode]
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        line = ClusterLine(ours, ClusterSettings("gpu1:6379", is_local_only=is_local_only))
        line._note_nodes([LARGE, SMALL, LOST, *([HERE] if is_local_only else [])])
        taken = []
        for number, _ in enumerate(places):
            line._places[f"r{number}"] = _Place(PlaceRequest(f"r{number}"), line._emptiest_node())
            taken.append(line._places[f"r{number}"].node)
        assert Counter(taken) == Counter(node.id for node in places)


def test_places_of_rollouts_that_have_ended_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_spawner, "PLACES_KEPT", 10)
    written = WrittenHome(tmp_path)
    written.rollout("long")
    places = ray_spawner._PlaceFile(written.home)
    for number in range(40):
        places.note(f"short{number}", NodePlace("n", "h"))
        places.note("long", NodePlace("n", "h"))
        places.write({})
        assert len(places._last) <= 10
    assert places.get("long") == NodePlace("n", "h"), "it goes on where it was"
    assert "long" in read_node_places(written.home).last
    written.close()
