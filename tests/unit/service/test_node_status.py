"""Nodes of a cluster as people and programs see them: status, rollouts, figures."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.service.prometheus_metrics import render_metrics
from houston_shared.command import main
from houston_shared.control_messages import NodeStatus
from houston_shared.daemon_status_text import node_words
from houston_shared.node_places import NodePlace, NodePlaces, node_places_file
from tests.support.written_home import WrittenHome
from tests.unit.service.test_prometheus_metrics import read, status, totals

LIVES = NodeStatus(
    "5f5a4dbd", "gpu1", True, 64.0, 515_000, 8.0, {"zone": "a"}, 3, ("r1", "r2", "r3", "r4", "r5")
)
LOST = NodeStatus("01ef3f87", "gpu2", False, 4.0, 16_000, 0.0, {}, 1, ("r6",))
REASON = "asks for 128 CPUs, more than any node has (5f5a4dbd: 64 CPUs, 515,000 MB)"


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    home = WrittenHome(tmp_path / "home")
    yield home
    home.connection.close()


@pytest.mark.parametrize(
    ("node", "words"),
    [
        pytest.param(
            LIVES,
            "5f5a4dbd on gpu1: 64 CPUs, 515,000 MB, 8 GPUs, zone=a; 3 workers: r1, r2, r3, r4 and"
            " 1 more",
            id="one that lives",
        ),
        pytest.param(
            LOST, "01ef3f87 on gpu2: lost; 4 CPUs, 16,000 MB; 1 worker: r6", id="one that is lost"
        ),
    ],
)
def test_a_line_of_the_status_says_what_a_node_offers_and_runs(
    node: NodeStatus, words: str
) -> None:
    assert node_words(node) == words


def test_figures_of_nodes(written: WrittenHome) -> None:
    now = status(str(written.home.path), nodes=(LIVES, LOST), unplaced={"r7": REASON})
    page = read(render_metrics(now, totals(written), written.home))
    alive, lost = (("node", LIVES.name),), (("node", LOST.name),)
    assert page["houston_node_up"] == {alive: 1.0, lost: 0.0}
    assert page["houston_node_workers"] == {alive: 3.0, lost: 1.0}
    assert page["houston_node_rollouts"] == {alive: 5.0, lost: 1.0}
    assert page["houston_unplaced"] == {(): 1.0}


def test_without_a_cluster_there_are_no_figures_of_nodes(written: WrittenHome) -> None:
    now = status(str(written.home.path))
    page = read(render_metrics(now, totals(written), written.home))
    assert not [name for name in page if name.startswith(("houston_node", "houston_unplaced"))]


def test_a_rollout_says_why_it_waits_and_on_which_node_it_ran(
    written: WrittenHome, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while no daemon runs: the home says it."""
    written.rollout("big-1111", state="queued")
    written.rollout("ran-2222")
    places = NodePlaces({"ran-2222": NodePlace("5f5a4dbd0ff6", "gpu1")}, {"big-1111": REASON})
    node_places_file(written.home).write_bytes(msgspec.json.encode(places))
    home = ["--home", str(written.home.path)]
    shown = {}
    for rollout in ("big-1111", "ran-2222"):
        assert main([*home, "rollout", "show", rollout, "--json"]) == 0
        shown[rollout] = json.loads(capsys.readouterr().out)
    assert shown["big-1111"]["reason"] == REASON
    assert [each["kind"] for each in shown["big-1111"]["reasons"]] == ["gpu"]
    assert shown["ran-2222"]["node"] == "gpu1 (node 5f5a4dbd)"
    assert main([*home, "rollout", "show", "ran-2222"]) == 0
    assert "gpu1 (node 5f5a4dbd)" in capsys.readouterr().out
