"""A worker in a network namespace, behind a link with delay and loss that is cut for a minute.

`HOUSTON_CUT_SECONDS` makes the cut shorter; below some 15 s TCP itself gets over it.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.disk import host_keys
from houston_shared import wire
from houston_shared.config import Configuration
from houston_shared.config_sections import RecorderSettings
from tests.faults import witness, workloads
from tests.faults.engine_proxy import free_port
from tests.faults.history import History, check
from tests.faults.stored import stored
from tests.integration.agent.rig import Rig
from tests.support.lossy_link import LossyLink, needs_links

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    needs_links,
]
CUT_SECONDS = float(os.environ.get("HOUSTON_CUT_SECONDS", "60"))
DELAY, LOSS = 0.04, 0.02
STEPS, AT = 10, 4
"""Steps of the rollout, and the one in which the line is cut."""
WORKER = (
    "import sys; from tests.faults import witness; witness.attend(sys.argv.pop(1));"
    " from houston_daemon.agent import rollout_worker; sys.exit(rollout_worker.main())"
)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def link() -> Iterator[LossyLink]:
    made = LossyLink(DELAY, LOSS)
    yield made
    made.close()


@pytest.fixture
def rig(tmp_path: Path, link: LossyLink) -> Iterator[Rig]:
    link.heal()
    settings = RecorderSettings(listen=f"tcp://{link.here}:{free_port()}")
    made = Rig(tmp_path, Configuration(recorder=settings))
    yield made
    made.close()


def script(sampling: float) -> list[dict[str, object]]:
    """Each step writes its number into a file, once if it runs once. sampling: seconds that the
    step takes to sample in which the line is cut."""
    held = "; until test -e go; do sleep 0.05; done"
    return [
        {
            "thought": f"t{n}",
            "delay": sampling if n == AT else 0.02,
            "calls": [
                workloads.call(
                    "run_command", command=f"echo {n} >> log.txt{held if n == AT else ''}"
                ),
                workloads.call("create_file", filename=f"file-{n}.txt", content=f"{n}\n"),
            ],
        }
        for n in range(1, STEPS + 1)
    ]


def start_worker(rig: Rig, link: LossyLink, rollout: str) -> "subprocess.Popen[bytes]":
    """A worker in the namespace, as a host that was added runs it."""
    endpoint = host_keys.add_host(rig.home, rig.configuration.recorder, "behind")
    file = rig.folder / "behind.endpoint.json"
    file.write_bytes(msgspec.json.encode(endpoint))
    lease = rig.recorder.assign(rollout).lease
    words = ["--endpoint", str(file), "--rollout", rollout, "--lease", str(lease)]
    command = link.inside(sys.executable, "-c", WORKER, str(rig.folder / "witness.jsonl"), *words)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    with (rig.folder / "worker.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def seen_by(rig: Rig) -> History:
    """What the worker said and was told so far, as it wrote it down."""
    seen = History()
    witness.read(rig.folder / "witness.jsonl", seen)
    return seen


def a_call_runs(rig: Rig, rollout: str) -> bool:
    log = rig.folder / "host/rollouts" / rollout / "workspace/log.txt"
    return log.exists() and str(AT) in log.read_text().split()


def a_sample_is_asked_for(rig: Rig, rollout: str) -> bool:
    return any(prompt.step == AT for prompt in seen_by(rig).prompts)


MOMENTS = [
    pytest.param(a_call_runs, 0.02, id="while a call is in flight"),
    pytest.param(a_sample_is_asked_for, CUT_SECONDS / 2, id="while a sample is under way"),
]


@pytest.mark.parametrize(("moment", "sampling"), MOMENTS)
def test_a_line_cut_for_a_minute_costs_that_minute_and_nothing_else(
    rig: Rig, link: LossyLink, moment: Callable[[Rig, str], bool], sampling: float
) -> None:
    rollout = rig.rollout(script(sampling), environment="workstation")
    worker = start_worker(rig, link, rollout)
    workspace = rig.folder / "host/rollouts" / rollout / "workspace"
    rig.until(lambda: moment(rig, rollout), why="the moment comes")
    link.cut()
    (before,) = rig.query("SELECT max(seq) FROM events WHERE rollout=?", rollout)
    for number in (1, 2):
        rig.ask(wire.Guide(id=f"said-{number}", rollout=rollout, text=f"word {number}"))
    (workspace / "go").touch()  # the call ends while nobody can be told
    threading.Event().wait(CUT_SECONDS)
    sql = "SELECT max(seq) FROM events WHERE rollout=? AND part IS NOT NULL"
    assert rig.query(sql, rollout) <= [before], "nothing passed"
    link.heal()
    healed = time.monotonic()
    rig.until(lambda: rig.query(sql, rollout) > [before], why="it goes on")
    print(f"resumed {time.monotonic() - healed:.1f} s after a cut of {CUT_SECONDS:g} s")
    assert worker.wait(120) == 0, (rig.folder / "worker.log").read_text()
    print(f"{link.carried} packets carried, {link.lost} lost")
    assert rig.state(rollout)[0] == "finished"
    assert rig.query("SELECT lease FROM rollouts WHERE id=?", rollout) == [(1,)], (
        "one worker did it"
    )
    numbers = [str(n) for n in range(1, STEPS + 1)]
    assert (workspace / "log.txt").read_text().split() == numbers, "no call ran twice"
    heard = {step.step: [one.text for one in step.guidance] for step in rig.steps(rollout)}
    assert {step: words for step, words in heard.items() if words} == {AT: ["word 1", "word 2"]}
    seen = seen_by(rig)
    assert len(seen.acked) > 5 * STEPS, "what was acked was seen"
    assert check(seen, stored(rig.home)) == []
    rig.recorder.stop()
    assert not verify_home(rig.home).findings
