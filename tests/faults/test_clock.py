"""F5: the wall clock is set by an hour or ten years. Order is by sequence, waiting is monotonic."""

import ast
import asyncio
import time
from pathlib import Path

import pytest

import houston_daemon
from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.workstation import system_actions
from houston_shared.records import CallIntent, ToolCall
from tests.faults import workloads
from tests.faults.daemon_under_test import Ground, Speaker
from tests.faults.final_checks import until_over, wrong
from tests.support.tiers import sampled

HOUR, YEARS = 3_600, 315_360_000


def test_a_daemon_whose_clock_jumps_goes_on_and_says_so(ground: Ground) -> None:
    ground.started()
    speaker = Speaker(ground, "ann")
    speaker.rollouts = ground.rollouts(workloads.null(ground, 60), 2)
    speaker.rollouts += ground.rollouts(workloads.workstation(ground, 6))
    speaker.start()
    jumped = "SELECT count(*) FROM events WHERE kind = 'jumped'"
    for count, seconds in enumerate((HOUR, -2 * HOUR, YEARS, -2 * YEARS), 1):
        ground.order("recorder.batch.before", f"clock={seconds}")
        ground.until(lambda n=count: ground.query(jumped) == [(n,)], 60, "the jump is stored")
    until_over(ground)
    speaker.stop()
    log = (ground.home.logs / "daemon.log").read_text()
    assert log.count("clock jumped: ") == 4
    assert "clock jumped: -7200" in log
    assert "ended (" not in log, "no worker lost its lease"
    leases = ground.query("SELECT max(lease) FROM rollouts")
    assert leases == [(1,)]
    assert wrong(ground, speaker) == []
    times = [at for (at,) in ground.query("SELECT at FROM events ORDER BY seq")]
    assert times != sorted(times), "the clock did go back"
    assert ground.stop() == 0
    ground.started()
    assert ground.stop() == 0, "a clock behind the journal's last event is no reason not to start"


@pytest.mark.parametrize("seconds", sampled([-YEARS, HOUR, -HOUR, YEARS], 1))
def test_a_worker_whose_clock_jumps_goes_on(ground: Ground, seconds: int) -> None:
    ground.started()
    ground.order("worker.result.after", f"clock={seconds}@2")
    (rollout,) = ground.rollouts(workloads.workstation(ground, 5))
    until_over(ground)
    assert [name for name, _, _ in ground.fired()] == ["worker.result.after"]
    log = ground.folder / "host" / "rollouts" / rollout / "workspace" / "log.txt"
    assert log.read_text().split() == ["1", "2", "3", "4", "5"]
    active = ground.query("SELECT active_us FROM rollouts")[0][0]
    assert 0 < active < 60_000_000, "active time is monotonic"
    assert wrong(ground) == []


@pytest.mark.parametrize(("deadline", "waits"), [(YEARS, 0.2), (0.1, 0.1), (-YEARS, 0.0)])
async def test_a_sleep_that_is_found_again_never_lasts_longer_than_it_was(
    deadline: float, waits: float
) -> None:
    call = ToolCall(id="1.0", name="sleep", arguments={"sleep_time": 0.2})
    intent = CallIntent(call=call, deadline=time.time() + deadline)
    slept = await asyncio.wait_for(system_actions.sleep_on(intent, 0.2, Stop()), 60)
    assert slept.ended_by == "time"
    assert slept.slept == 0.2, "its time ran on while nobody looked"


READS_THE_WALL_CLOCK = {
    "environments/retrieval/searcher.py": "how old a kept answer is: files outlive a boot",
    "environments/workstation/web_page.py": "how old a kept page is: files outlive a boot",
    "environments/workstation/browse_actions.py": "how old a page is, told to the agent",
    "environments/workstation/web_fetch.py": "when a page was fetched, told to the agent",
    "environments/workstation/step_closing.py": "when output was printed, told to the agent",
    "environments/workstation/command_actions.py": "how long a terminal has been silent",
    "environments/workstation/workstation_environment.py": "when a sleep ends, for a successor",
    "environments/workstation/session_records.py": "when output was printed",
    "environments/workstation/system_actions.py": "how much of a sleep is left, never more",
    "engines/embedded/completions_wire.py": "a field of the protocol that nobody reads",
    "environments/verifiers/verifiers_child.py": "a field of the protocol that nobody reads",
    "hosts/terminals/local_terminal.py": "when a command began and ended, told to people",
    "hosts/terminals/background_commands.py": "when a command began and ended, told to people",
    "hosts/snapshots/shadow_repository.py": "file times are wall times",
    "hosts/ssh/file_bundles.py": "how long ago a piece of a parcel came: file times are wall",
    "maintenance/home_backup.py": "how old a backup is, by its file's time",
    "recorder/recorder_loop.py": "how old the newest backup is, never less than nothing",
    "maintenance/durable_copy.py": "names of backups sort by time",
    "training/sft/create_run.py": "how old is what a killed command has begun: file times are wall",
    "service/periodic_backup.py": "how old the newest backup is: it may outlive a boot",
    "commands/doctor_commands.py": "doctor asks whether the clock is set at all",
}


def test_nothing_else_reads_the_wall_clock() -> None:
    """Leases have no time, waiting is monotonic: whoever needs a date asks `clock.now_us`."""
    root = Path(houston_daemon.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                wall = (node.value.id, node.attr) in (
                    ("time", "time"),
                    ("time", "time_ns"),
                    ("datetime", "now"),
                )
                if wall:
                    found.add(str(file.relative_to(root)))
    assert found == set(READS_THE_WALL_CLOCK)
