"""What can go wrong with a terminal or a folder, as errors that people and environments act on."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from houston_shared.errors import ExitCode, HoustonError


class NeedsPerson(HoustonError):
    """Only a person can help, on the host: until then the rollout is paused, never failed."""


class WorkspaceGone(NeedsPerson):
    """The rollout has worked in a workspace that is not here (any more)."""

    def __init__(self, workspace: Path) -> None:
        folder = workspace.parent
        super().__init__(
            f"The workspace {workspace} is gone; it was there when this rollout last ran.",
            "It waits: a fresh copy would not hold the agent's work.",
            f"Put {folder} back (a restored home: copy it from the machine before), then: houston"
            f" rollout resume {folder.name}; or give it up: houston rollout cancel {folder.name}",
        )


class NoRoot(NeedsPerson):
    """What rollouts own cannot be kept where this one was started to keep it."""

    def __init__(self, folder: Path, problem: OSError) -> None:
        super().__init__(
            f"The folder {folder} cannot be made: {problem.strerror}.",
            "It waits: a rollout keeps what it owns where it was started to keep it.",
            f"Make it, for the daemon's user, then: houston rollout resume {folder.name}",
        )


class HeldElsewhere(NeedsPerson):
    """Another home drives the rollout's folder, or another worker of this one."""

    def __init__(self, note: Path, home: str, running: bool) -> None:
        rollout = note.parent.name
        who = f"the home {home}" if home else "another process"
        does = "is at work" if running else "has a rollout of that name"
        super().__init__(
            f"The workspace of {rollout} is another's: {who} {does}.",
            "Nothing was done in it: two daemons would act in one workspace.",
            f"Cancel {rollout} there, or take it from there for good by removing {note};"
            f" then: houston rollout resume {rollout}",
            ExitCode.BUSY,
        )


class TerminalMissing(HoustonError):
    """No terminal of that name was ever opened, or it was closed."""

    def __init__(self, name: str) -> None:
        self.words = (name,)
        super().__init__(
            f"There is no terminal named {name!r}.", next="Create it first, or list the terminals."
        )


class TerminalBusy(HoustonError):
    """A command still runs in the foreground of the terminal."""

    def __init__(self, name: str, command: str) -> None:
        self.words = (name, command)
        shown = command if len(command) <= 80 else command[:80] + "…"
        super().__init__(
            f"Terminal {name!r} still runs {shown!r}.",
            "The new command was not started.",
            "Wait for it, signal it, or use another terminal.",
            ExitCode.BUSY,
        )


class TerminalDead(HoustonError):
    """The shell of the terminal has ended or does not answer."""

    def __init__(self, name: str, why: str) -> None:
        self.words = (name, why)
        super().__init__(
            f"Terminal {name!r} is dead: {why}.",
            "What it printed is kept, but nothing can run in it.",
            "Create it again.",
        )


class HostAway(HoustonError):
    """A host cannot be reached now, or went away while something ran there."""

    def __init__(
        self,
        host: str,
        why: str,
        back: Callable[[], Coroutine[Any, Any, None]],
        cut: bool = False,
    ) -> None:
        """why: in words; back: returns when the host can be reached.
        cut: something was under way there, and what came of it is not known.
        """
        self.host, self.why, self.back, self.cut = host, why, back, cut
        what = "went away while this ran there" if cut else "cannot be reached"
        super().__init__(
            f"The host {host} {what}: {why}.",
            "The outcome is unknown." if cut else "Nothing was done there.",
            "It is tried again all the while; its terminals and what runs in them go on.",
            ExitCode.BUSY,
        )
