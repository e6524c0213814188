"""Fixtures for every test: a station that is always stopped, its engine too; and which come first.

Files are given whole to the next worker that is free. Those that take long begin, so that no worker
is left with one while the others have ended; models, which want every core, take turns with
scenarios that mostly wait, and the files that start vLLM do not meet.
"""

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.station import Station
from tests.support.tiers import TIERS, may_hold, tiers_of

# Tests share the cores: a matrix on several threads mostly waits for its own threads, and spins.
# In children too; engines set their own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A version manager's `python3` is a script that takes longer than the Python it starts; agents,
# evaluators and simulators of tests start thousands.
with open(shutil.which("python3") or sys.executable, "rb") as program:
    is_script = program.read(2) == b"#!"
if is_script:
    os.environ["PATH"] = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
# Trainings that tests start report to no tracker of whoever runs them.
os.environ["TRACKIO_DIR"] = os.path.join(tempfile.gettempdir(), f"houston-trackio-{os.getuid()}")

# How fast a busy machine makes up examples says nothing about Houston; and a change is judged by
# the same examples as the one before it. HYPOTHESIS_PROFILE=search tries new ones, many more.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", parent=settings.get_profile("suite"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

FIRST = (
    "integration/end_to_end/test_full_training_cycle.py",
    "integration/end_to_end/test_vllm.py",
    "faults/test_daemon_dies.py",
    "training/echo/test_echo_run.py",
    "integration/service/test_rollouts.py",
    "integration/service/test_daemon_stop.py",
    "training/echo/test_failure_drift.py",
    "faults/test_network_cut.py",
    "integration/end_to_end/test_real_model.py",
    "training/rl/test_rl_run.py",
    "console/test_fuzz.py",
    "engines/test_token_contract.py",
    "faults/test_resume_leases.py",
    "integration/end_to_end/test_kills.py",
    "training/sft/test_trainer_process.py",
    "security/test_sandbox_escapes.py",
    "integration/training/test_policy_activation.py",
    "training/echo/test_echo_suites.py",
    "integration/service/test_daemon.py",
    "training/test_prm_runs.py",
    "integration/end_to_end/test_research.py",
    "security/test_look_alikes.py",
    "integration/agent/test_token_engine.py",
    "engines/test_model_and_vllm_install.py",
    "integration/training/test_trainers.py",
    "integration/simulation/test_purified_world.py",
    "integration/maintenance/test_backup.py",
    "training/critic/test_people_examples.py",
    "faults/test_resume_equal.py",
    "faults/test_disk_full.py",
    "faults/test_resume_model.py",
    "faults/test_worker_dies.py",
    "integration/end_to_end/test_demo.py",
    "security/test_sandbox_limits.py",
    "faults/test_sigterm.py",
    "faults/test_two_daemons.py",
    "security/test_terminal_console.py",
    "faults/power_cut/test_power_cuts.py",
    "integration/maintenance/test_verify.py",
    "integration/maintenance/test_bit_flips.py",
    "console/test_hostile.py",
    "integration/openenv/test_openenv.py",
    "integration/recorder/test_recorder_kill.py",
    "faults/test_recorder_dies.py",
    "faults/test_shared_workers.py",
    "faults/test_replicas_lost.py",
    "integration/end_to_end/test_hostile_tools.py",
    "integration/end_to_end/test_guidance_modes.py",
    "faults/test_clock.py",
    "faults/test_resume_budgets.py",
    "faults/test_resume_engines.py",
    "faults/test_resume_terminals.py",
    "faults/test_writer_fails.py",
    "faults/test_long_readers.py",
)
"""Files that take more than some twenty seconds: those with models, the longest first, and beside
each one that waits, in such turns that every second and every fourth file make a fair part."""


class _FailuresAtOnce:
    """Names what failed as it fails: a run that is ended from outside prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        told = str(report.longrepr).strip().splitlines() or [""]
        terminal = self._config.get_terminal_writer()
        terminal.line()
        terminal.line(
            f"{report.nodeid} failed in {report.when}, {report.duration:.0f} s: {told[-1]}"
        )
        terminal.flush()


def pytest_configure(config: pytest.Config) -> None:
    """Failures at once, from the process that has the terminal; and Ctrl-C as it was meant: a shell
    lets what it runs in the background ignore it, and children inherit that."""
    gc.disable()  # collecting tests makes no garbage
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier`: only tests of that tier (`tests/support/tiers.py`). `--part 1/4`: every fourth file
    of them, `--part 2,3,4/4` the other three, so that a long tier fits a time limit."""
    parser.addoption("--tier", choices=TIERS, help="only the tests of one tier")
    parser.addoption("--part", default="1/1", metavar="K,…/N", help="of N parts, by file")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that hold no test of the tier are not even imported."""
    tier = config.getoption("--tier")
    if not tier or collection_path.suffix != ".py" or may_hold(collection_path, tier):
        return None
    return True


def pytest_collection_finish() -> None:
    """Six thousand tests and all modules stay: a fifth of the time went into looking for garbage
    among them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long files first; the others, and the tests of each, keep their order.

    Of `--part`, each file that has tests to run falls to the next part in that order.
    """
    if tier := config.getoption("--tier"):
        _keep(config, items, [tier in tiers_of(item) for item in items])
    here = Path(__file__).parent
    turns = {here / name: turn for turn, name in enumerate(FIRST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))
    chosen, _, parts = config.getoption("--part").partition("/")
    part_of = {
        path: number % int(parts) + 1
        for number, path in enumerate(dict.fromkeys(item.path for item in items))
    }
    _keep(config, items, [str(part_of[item.path]) in chosen.split(",") for item in items])


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[bool]) -> None:
    """Leave out the items that are not `kept`."""
    config.hook.pytest_deselected(
        items=[item for item, keep in zip(items, kept, strict=True) if not keep]
    )
    items[:] = itertools.compress(items, kept)


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    """A station that is not started; stopped at the end whatever happened."""
    made = Station(tmp_path)
    yield made
    made.clear()
