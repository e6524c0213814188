"""Following a run from a command: its lines as they come, and how it ended. It imports no torch."""

import signal
import subprocess
import time
from types import FrameType

from houston_daemon.training.sft import progress
from houston_daemon.training.sft.run_folder import RunFolder, settle
from houston_shared import out, training_progress
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.lock import holder
from houston_shared.store.queries import training_runs
from houston_shared.store.reader import Reader

LOOK_SECONDS = 0.5
ENDED = ("finished", "failed", "cancelled")


def own(child: "subprocess.Popen[bytes]", folder: RunFolder) -> str:
    """Follow a process of ours. Ctrl-C asks it to save and end, a second one ends it."""
    asked = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        child.send_signal(signal.SIGTERM if asked == 1 else signal.SIGKILL)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    shown = _Shown(folder)
    while True:
        try:
            code = child.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            shown.show()
        else:
            shown.show()
            return settle(folder, code).state


def of_daemon(loaded: Loaded, folder: RunFolder) -> str:
    """Follow a child of the daemon. Ctrl-C only stops following."""
    try:
        return _until_ended(loaded, folder)
    except KeyboardInterrupt:
        run = folder.path.name
        out.note(f"\n{run} goes on.\n  next: houston train show {run}, or train cancel {run}")
        raise


def _until_ended(loaded: Loaded, folder: RunFolder) -> str:
    shown = _Shown(folder)
    with Reader(loaded.home) as reader:
        while True:
            shown.show()
            one = reader.run(training_runs.one(folder.path.name))
            if one is not None and one.state in ENDED:
                shown.show()
                return one.state
            if one is not None and one.state == "queued" and one.reason:
                shown.say(one.reason)
            if holder(loaded.home) is None:
                raise HoustonError(
                    f"The daemon ended; {folder.path.name} goes on when it is back.",
                    next="houston daemon start",
                    code=ExitCode.DAEMON_NOT_RUNNING,
                )
            time.sleep(LOOK_SECONDS)


class _Shown:
    """Lines of a run on stderr, each once."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._last = ""

    def show(self) -> None:
        """What is new since the last look."""
        now = progress.read(self._folder.path)
        if now is not None:
            self.say(training_progress.words(now))

    def say(self, line: str) -> None:
        """A line, if it is not the one before."""
        if line != self._last:
            self._last = line
            out.note(line)
