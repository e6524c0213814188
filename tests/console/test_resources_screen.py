"""The screen of engines, machines and queues: what there is, what runs where, and what waits."""

from dataclasses import replace

import msgspec

from houston_console.screens.resources_screen import ResourcesScreen
from houston_daemon.recorder.recorder_handle import SupervisorReport
from houston_shared.control_messages import NodeStatus, ReplicaStatus
from houston_shared.node_places import NodePlace, NodePlaces, node_places_file
from tests.console.conftest import SMALL, LiveStation, Sit

REASON = "asks for 8 GPUs, more than any node has (5f5a4dbd: 64 CPUs, 515,000 MB)"
REPORT = SupervisorReport(
    workers=4,
    engines={"qwen": "ready", "judge": "down: it ended with 1"},
    replicas={
        "qwen": (
            ReplicaStatus("1", "ready", "gpu1:8001", rollouts=12, requests=3),
            ReplicaStatus("2", "down: no answer for 30 s", "gpu1:8002", rollouts=0),
        )
    },
    gpus={"local": "3 of 4 leased: qwen 2, dapo-1 1", "waiting": "training sft-2 for 2"},
    nodes=(
        NodeStatus("5f5a4dbd", "gpu1", True, 64.0, 515_000, 8.0, {"zone": "a"}, 3, ("r1", "r2")),
        NodeStatus("01ef3f87", "gpu2", False, 4.0, 16_000, 0.0, {}, 1, ("r6",)),
    ),
    unplaced={"r8": REASON, "r7": REASON},
)


async def test_what_there_is_runs_and_waits_is_shown_and_kept_up_to_date(
    live: LiveStation, sit: Sit
) -> None:
    live.recorder.report(REPORT)
    async with sit(live.home) as seat:
        await seat.press("Q")
        lines = "#resource-lines"
        await seat.until(lambda: "gpu1" in seat.text(lines))
        for words in (
            "qwen: ready",
            "1 at gpu1:8001: ready; 12 rollouts; 3 samples under way",
            "5f5a4dbd on gpu1: 64 CPUs, 515,000 MB, 8 GPUs, zone=a; 3 workers: r1, r2",
            "01ef3f87 on gpu2: lost;",
            "waiting: training sft-2 for 2",
            "r7, r8: asks for 8 GPUs",
        ):
            assert words in seat.text(lines), words
        live.recorder.report(replace(REPORT, unplaced={}))
        await seat.until(lambda: "asks for 8 GPUs" not in seat.text(lines))
        await seat.press("Q", "escape")
        assert not isinstance(seat.app.screen, ResourcesScreen)


async def test_without_a_daemon_it_says_so_and_what_waited(live: LiveStation, sit: Sit) -> None:
    places = NodePlaces({"r6": NodePlace("01ef3f870ff6", "gpu2")}, {"r7": REASON})
    node_places_file(live.home).write_bytes(msgspec.json.encode(places))
    async with sit(live.home, size=SMALL) as seat:
        live.stop()
        await seat.press("Q")
        await seat.until(lambda: "r7: asks for 8 GPUs" in seat.text("#resource-lines"))
        text = seat.text("#resource-lines")
        assert "houston daemon start" in text and "r6: gpu2 (node 01ef3f87)" in text
        live.again()
        await seat.until(lambda: "running on" in seat.text("#resource-lines"))
