"""The one family of errors that reaches a person, and the exit codes of the command line.

An error says its cause, its effect and the next command in one sentence each. It does not know how
it is shown: the command line prints it, the console shows it.
"""

import contextlib
from collections.abc import Iterable, Iterator
from enum import IntEnum


class ExitCode(IntEnum):
    """What a `houston` command returns to its shell (docs/design.md#commands-and-formats)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DAMAGED = 65
    NOT_FOUND = 66
    """What was named (a rollout, step, policy, run, suite, engine, recipe, file) is not there."""
    DAEMON_NOT_RUNNING = 69
    BUSY = 75
    CONFIGURATION = 78


EXIT_CODE_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "wrong usage",
    ExitCode.DAMAGED: "the home is damaged",
    ExitCode.NOT_FOUND: "what was named does not exist",
    ExitCode.DAEMON_NOT_RUNNING: "no daemon runs",
    ExitCode.BUSY: "busy",
    ExitCode.CONFIGURATION: "wrong configuration",
}
"""What help and docs say of each."""


class HoustonError(Exception):
    """Something a person can act on.

    cause: what is wrong, naming the thing (a path, a key, an id).
    effect: what was not done because of it; empty when the cause says it.
    next: what to do now, usually a command.
    code: the exit code of the command that met it; None is that of the class.
    """

    code = ExitCode.FAILED

    def __init__(
        self, cause: str, effect: str = "", next: str = "", code: ExitCode | None = None
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.effect = effect
        self.next = next
        self.code = self.code if code is None else code

    def __str__(self) -> str:
        return " ".join(part for part in (self.cause, self.effect, self.next) if part)


class UsageError(HoustonError):
    """What was asked for makes no sense, or not in these words."""

    code = ExitCode.USAGE


class Damaged(HoustonError):
    """What the home, an archive or a store holds is not what was written there."""

    code = ExitCode.DAMAGED


class NotFound(HoustonError):
    """What was named is not there."""

    code = ExitCode.NOT_FOUND


class Busy(HoustonError):
    """Somebody else is using it, or it took longer than the wait: a retry may succeed."""

    code = ExitCode.BUSY


class ConfigurationError(HoustonError):
    """A wrong key or value in a configuration or task file; names file, key and what is allowed."""

    code = ExitCode.CONFIGURATION


@contextlib.contextmanager
def unwritable_as_error(place: object, effect: str = "", next: str = "") -> Iterator[None]:
    """Turn an OSError from writing to `place` (a path or words for one) into a HoustonError."""
    try:
        yield
    except OSError as problem:
        cause = f"{place} cannot be written: {problem.strerror or problem}."
        raise HoustonError(cause, effect, next) from problem


@contextlib.contextmanager
def unreadable_as_error(
    place: object, effect: str = "", next: str = "", error: type[HoustonError] = HoustonError
) -> Iterator[None]:
    """As `unwritable_as_error`, to read what a person named, text or not: raises `error`, with the
    code of NotFound if it is missing."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        code = unreadable_file_code(problem, error.code)
        raise error(f"{place} cannot be read: {reason}.", effect, next, code) from problem


def unreadable_file_code(problem: Exception, default: ExitCode = ExitCode.FAILED) -> ExitCode:
    """The exit code for a file that was named and cannot be read."""
    return ExitCode.NOT_FOUND if isinstance(problem, FileNotFoundError) else default


def close_matches(
    word: str, known: Iterable[str], max_matches: int = 3, cutoff: float = 0.7
) -> list[str]:
    """Which of the known words somebody may have meant by `word`, the nearest first.

    cutoff: difflib's ratio, 0 to 1.
    """
    import difflib  # some milliseconds, and only after a slip

    return difflib.get_close_matches(word, list(dict.fromkeys(known)), max_matches, cutoff)


def abbreviated_names(word: str, known: Iterable[str]) -> tuple[list[str], str]:
    """Names that `word` is the beginning of, or else the ending; and which: `begin` or `end`."""
    known = list(known)
    if beginning := [name for name in known if word and name.startswith(word)]:
        return beginning, "begin"
    return [name for name in known if word and name.endswith(word)], "end"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The next step after a mistyped word: `did you mean X or Y?`; empty where none is near."""
    known = list(known)
    longer = [each for each in known if len(word) > 2 and each.startswith(word)]
    near = sorted(longer, key=len)[:3] or close_matches(word, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


class DaemonNotRunning(HoustonError):
    """A command that needs the daemon found none."""

    def __init__(self, cause: str, effect: str = "", next: str = "houston daemon start") -> None:
        super().__init__(cause, effect, next, ExitCode.DAEMON_NOT_RUNNING)


class AnswerLost(DaemonNotRunning):
    """The daemon ended after it was asked: what was asked may be done, or not."""


class NoAnswer(Busy):
    """The daemon runs and was silent for as long as its asker waited."""


class UnknownAnswer(HoustonError):
    """The daemon answered what this version cannot read: it is of another."""


class DaemonFrozen(NoAnswer):
    """The daemon cannot answer: a signal has stopped it. Asking again is of no use."""
