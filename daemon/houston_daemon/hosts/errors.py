"""What can go wrong with a terminal or a folder, as errors that people and environments act on."""

from pathlib import Path

from houston_shared.errors import ExitCode, HoustonError


class HeldElsewhere(HoustonError):
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
        super().__init__(
            f"There is no terminal named {name!r}.", next="Create it first, or list the terminals."
        )


class TerminalBusy(HoustonError):
    """A command still runs in the foreground of the terminal."""

    def __init__(self, name: str, command: str) -> None:
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
        super().__init__(
            f"Terminal {name!r} is dead: {why}.",
            "What it printed is kept, but nothing can run in it.",
            "Create it again.",
        )
