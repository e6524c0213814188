"""`houston demo`: a daemon, a recording, a live agent and the console, in one command.

Without the extra `local` there is no model: it plays script and recording, and says what is
missing. The home stays afterwards. The package `demo` has the tour.
"""

import argparse
import json
import tempfile
from pathlib import Path

from houston_daemon.demo.demo_tour import LIVE_ENGINE, LIVE_ENGINE_TABLE, DemoTour
from houston_daemon.engines.local_model import INSTALL_LOCAL_HINT, fetch_model, missing_packages
from houston_shared import command_output, home_lock
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import Busy


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    """`--headless`; the home is a new temporary one unless `--home` or HOUSTON_HOME names one."""
    parser.add_argument(
        "--headless",
        action="store_true",
        help="no screen: speak to the agent, wait until it hears, stop and report",
    )


def run_demo(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Run the demo; its home stays, so that one can look at it afterwards. Raises HoustonError
    where the home has a daemon: the demo stops its own at the end."""
    if arguments.home_given and home_lock.find_running_daemon(loaded.home):
        raise Busy(
            f"A daemon runs on {loaded.home.path}, but the demo starts and stops its own daemon.",
            "Nothing was started.",
            "env -u HOUSTON_HOME houston demo, which makes a home of its own",
        )
    if lacking := missing_packages():
        command_output.print_note(
            f"No model runs: it needs {', '.join(lacking)}.\n  next: {INSTALL_LOCAL_HINT}"
        )
    else:
        fetch_model(command_output.print_note)
    home, environment = _demo_home(arguments, loaded)
    command_output.print_line(f"home: {home}")
    tour = DemoTour(home, environment, model=not lacking)
    try:
        if arguments.headless:
            tour.headless()
        else:
            tour.console()
    finally:
        tour.stop()
    command_output.print_line(
        "Everything is stored; unfinished rollouts continue with `daemon start`:"
    )
    command_output.print_line(f"  houston --home {home} rollout list")
    return 0


def _demo_home(
    arguments: argparse.Namespace, loaded: LoadedConfiguration
) -> tuple[Path, dict[str, str]]:
    """The home, and what its processes are told; a temporary one has a host root beside it."""
    environment = {f"HOUSTON__ENGINES__{LIVE_ENGINE.upper()}": LIVE_ENGINE_TABLE}
    if arguments.home_given:
        return loaded.home.path, environment
    folder = Path(tempfile.mkdtemp(prefix="houston-demo-"))
    home = folder / "home"
    home.mkdir()
    # So that later commands on this home know what the demo's processes are told.
    root = json.dumps(str(folder / "host"))
    text = f"[hosts]\nroot = {root}\n\n[engines]\n{LIVE_ENGINE} = {LIVE_ENGINE_TABLE}\n"
    (home / "houston.toml").write_text(text, encoding="utf-8")
    return home, {**environment, "HOUSTON__HOSTS__ROOT": str(folder / "host")}
