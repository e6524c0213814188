"""What can go wrong with a terminal, as errors a person or an environment can act on."""

from houston_shared.errors import ExitCode, HoustonError


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
