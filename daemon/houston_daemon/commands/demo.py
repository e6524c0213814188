"""`houston demo`: model, daemon, two rollouts, a recorded sample, console: one command.

Without the extra `local` there is no model: script and recording play, and it says what is missing.
"""

import argparse
import tempfile
from pathlib import Path

from houston_daemon.demo.tour import Tour
from houston_daemon.engines.model import INSTALL_LOCAL, fetch_model, missing
from houston_shared import out
from houston_shared.config import Loaded


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--headless`; the home is a new temporary one unless `--home` or HOUSTON_HOME names one."""
    parser.add_argument(
        "--headless",
        action="store_true",
        help="no screen: say one thing to the agent, wait until it is heard, stop, tell",
    )


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Run the demo; its home stays, so that one can look at it afterwards."""
    if lacking := missing():
        out.note(f"No model plays: it needs {', '.join(lacking)}.\n  next: {INSTALL_LOCAL}")
    else:
        fetch_model(out.note)
    home, environment = _place(arguments, loaded)
    out.line(f"home: {home}")
    tour = Tour(home, environment, model=not lacking)
    try:
        if arguments.headless:
            tour.headless()
        else:
            tour.start()
            tour.console()
    finally:
        tour.stop()
    out.line("Everything is still there; what had not ended goes on with `daemon start`:")
    out.line(f"  houston --home {home} rollout list")
    return 0


def _place(arguments: argparse.Namespace, loaded: Loaded) -> tuple[Path, dict[str, str]]:
    """The home, and for a temporary one also a host root beside it."""
    if arguments.home_given:
        return loaded.home.path, {}
    folder = Path(tempfile.mkdtemp(prefix="houston-demo-"))
    return folder / "home", {"HOUSTON__HOSTS__ROOT": str(folder / "host")}
