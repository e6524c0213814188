"""The command `houston`: finds the module of a command and runs it.

It knows the table of commands and nothing of what they do. A module is imported only when its
command runs, so that `houston guide` never pays for Textual or torch. Each module has
`arguments(parser)` and `run(arguments, loaded) -> int`.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from houston_shared import out, streams
from houston_shared.config import Configuration, Loaded, load
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.safe_text import safe


class Command(NamedTuple):
    """One command: its words, where it lives, one line of help."""

    words: tuple[str, ...]
    module: str
    help: str


def _commands(*rows: tuple[str, str, str]) -> tuple[Command, ...]:
    return tuple(Command(tuple(words.split()), module, help) for words, module, help in rows)


COMMANDS = _commands(
    ("demo", "houston_daemon.commands.demo", "the whole thing on the embedded model"),
    ("daemon start", "houston_daemon.commands.start", "start the daemon; returns when ready"),
    ("daemon stop", "houston_daemon.commands.stop", "drain and stop the daemon"),
    ("daemon restart", "houston_daemon.commands.restart", "stop and start; engines go on"),
    ("daemon status", "houston_daemon.commands.status", "how the daemon stands"),
    (
        "daemon install-service",
        "houston_daemon.commands.install_service",
        "write its systemd unit",
    ),
    ("daemon logs", "houston_daemon.commands.logs", "show or follow its log"),
    ("task new", "houston_daemon.commands.task_new", "write a task folder to start from"),
    ("task import", "houston_daemon.commands.task_import", "take a task of InnovatorBench over"),
    ("task validate", "houston_daemon.commands.task_validate", "check a task file"),
    ("task list", "houston_console.headless.task_list", "tasks of this home"),
    ("rollout start", "houston_daemon.commands.rollout_start", "start rollouts of a task"),
    ("rollout list", "houston_console.headless.rollout_list", "all rollouts, by need"),
    ("rollout show", "houston_console.headless.rollout_show", "one rollout"),
    ("rollout people", "houston_console.headless.rollout_people", "who looked, and for how long"),
    ("rollout compare", "houston_console.headless.rollout_compare", "two rollouts side by side"),
    ("rollout pause", "houston_console.headless.rollout_pause", "pause a rollout"),
    ("rollout resume", "houston_console.headless.rollout_resume", "resume a paused rollout"),
    ("rollout cancel", "houston_console.headless.rollout_cancel", "end a rollout for good"),
    ("rollout branch", "houston_console.headless.rollout_branch", "a sibling from a step"),
    ("rollout restore", "houston_daemon.commands.rollout_restore", "a workspace as it was"),
    (
        "rollout printed",
        "houston_daemon.commands.rollout_printed",
        "a terminal's log from another machine",
    ),
    ("rollout clean", "houston_console.headless.rollout_clean", "free its part of the host"),
    ("rollout archive", "houston_daemon.commands.rollout_archive", "into a file, out of the home"),
    ("rollout erase", "houston_daemon.commands.rollout_erase", "erase a step, or a leaked secret"),
    ("guide", "houston_console.headless.guide", "say something to an agent"),
    ("guidance", "houston_console.headless.guidance", "what was said, and when it was heard"),
    ("since", "houston_console.headless.since", "what happened since you were here"),
    ("verdict", "houston_console.headless.verdict", "keep or mask steps; what was said of them"),
    ("judge", "houston_daemon.commands.judge", "rules and a model judge steps; how well they do"),
    ("bookmark", "houston_console.headless.bookmark", "mark a step for everybody, with a note"),
    ("claim", "houston_console.headless.claim", "look after a rollout; leave a note"),
    ("steps", "houston_console.headless.steps", "the steps of a rollout"),
    ("policy list", "houston_console.headless.policy_list", "what was trained; what is active"),
    ("policy show", "houston_console.headless.policy_show", "where a policy comes from"),
    (
        "policy activate",
        "houston_console.headless.policy_activate",
        "have new rollouts sample with it",
    ),
    ("policy rollback", "houston_console.headless.policy_rollback", "back to the one before"),
    ("policy merge", "houston_daemon.commands.policy_merge", "base and adapter as one model"),
    ("policy export", "houston_daemon.commands.policy_export", "as a GGUF file"),
    ("policy import", "houston_daemon.commands.policy_import", "take one from elsewhere over"),
    ("train sft", "houston_daemon.commands.train_sft", "train a model on rows of rollouts"),
    ("train list", "houston_console.headless.train_list", "training runs, how far they are"),
    ("train show", "houston_console.headless.train_show", "one training run"),
    ("train cancel", "houston_console.headless.train_cancel", "end a training run"),
    ("context", "houston_console.headless.context", "what the model saw at a step"),
    ("files", "houston_console.headless.files", "files that were changed, with diffs; searches"),
    ("search", "houston_console.headless.search", "find text in all rollouts"),
    ("tail", "houston_console.headless.tail", "follow steps as they come"),
    ("console", "houston_console.app.command", "the annotators' screen"),
    ("export", "houston_daemon.commands.export", "rows as a file that others train on"),
    ("verify", "houston_daemon.commands.verify", "check every byte of the store"),
    ("repair", "houston_daemon.commands.repair", "set damaged events aside, rebuild the rest"),
    ("backup", "houston_daemon.commands.backup", "copy the home while the daemon runs"),
    ("log", "houston_console.headless.log", "the journal; --audit for who did what"),
    (
        "host-serve",
        "houston_daemon.commands.host_serve",
        "what another node starts here over SSH",
    ),
    (
        "experiment",
        "houston_daemon.commands.experiment",
        "what guidance and masks are worth, measured",
    ),
    ("mcp serve", "houston_daemon.commands.mcp_serve", "our python and search tools, over MCP"),
    ("doctor", "houston_daemon.commands.doctor", "check this machine; fetch model and engine"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (DESIGN §9)."""
    try:
        return _answered(list(sys.argv[1:] if argv is None else argv))
    finally:
        # The kernel takes back all at once what the interpreter would look through, object by
        # object, before it ends: 18 of the 95 ms of `houston guide`.
        gc.freeze()


def _answered(arguments: list[str]) -> int:
    """The exit code of a command, whatever it raises: every error becomes a sentence."""
    try:
        streams.prepare()
        code = _run(arguments)
        out.flush()
        return code
    except HoustonError as problem:
        out.error(problem)
        streams.finish()
        return int(problem.code)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing is left to say to it.
        streams.abandon()
        return int(ExitCode.DONE)
    except KeyboardInterrupt:
        return 130
    except Exception as problem:  # noqa: BLE001 the last resort: a fault of ours, said as such
        _fault(problem, arguments)
        streams.finish()
        return int(ExitCode.FAILED)


def _fault(problem: Exception, arguments: list[str]) -> None:
    """What no part of Houston expected; the trace is for who mends it."""
    debugging = os.environ.get("HOUSTON_DEBUG") == "1"
    if debugging:
        import traceback

        out.note(traceback.format_exc())
    what = str(problem).strip().partition("\n")[0]
    words = " ".join(arguments[:2])
    out.error(
        HoustonError(
            f"This is a fault of Houston: {type(problem).__name__}{f': {what}' if what else ''}.",
            "What was asked may not have been done.",
            "report it"
            if debugging
            else f"report it, with what HOUSTON_DEBUG=1 houston {words} … says",
        )
    )


def _run(arguments: list[str]) -> int:
    _check_text(arguments)
    flags, rest = _global_flags(arguments)
    if rest[:1] == ["--version"]:
        from importlib.metadata import version

        out.line(f"houston {version('houston-agents')}")
        return int(ExitCode.DONE)
    command = _find(rest)
    if command is None:
        return _overview(rest)
    module: ModuleType = importlib.import_module(command.module)
    parser = _Parser("houston " + " ".join(command.words), description=command.help)
    _add_flags(parser)
    module.arguments(parser)
    parsed = parser.parse_args(rest[len(command.words) :])
    home = parsed.home or flags.home
    parsed.home_given = bool(home or os.environ.get("HOUSTON_HOME"))
    return int(module.run(parsed, _loaded(command, home, parsed.config or flags.config)))


ASK_THE_DAEMON = (("daemon", "status"), ("daemon", "stop"), ("daemon", "logs"))
"""Commands that need to know nothing but the home."""


def _loaded(command: Command, home: str | None, file: str | None) -> Loaded:
    """The configuration; a daemon that runs is asked and stopped whatever its file says now."""
    try:
        return load(home, file)
    except ConfigurationError as problem:
        named = home or os.environ.get("HOUSTON_HOME")
        if command.words not in ASK_THE_DAEMON or not named:
            raise
        out.note(f"warning: {problem.cause}")
        return Loaded(Configuration(), Home(Path(named).expanduser().absolute()), "defaults")


def _check_text(arguments: list[str]) -> None:
    """Bytes that are no text can be no name, no number and nothing to say."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise HoustonError(
                f"The argument {safe(argument)!r} is not UTF-8 text.", code=ExitCode.USAGE
            )


class _Parser(argparse.ArgumentParser):
    def print_help(self, file: Any = None) -> None:
        """As argparse does, but that it could not be written is an error."""
        out.line(self.format_help().rstrip("\n"))
        out.flush()

    def _print_message(self, message: str, file: Any = None) -> None:
        """What argparse has to say quotes arguments, and is safe like every other line."""
        out.note(message.removesuffix("\n"))


def _global_flags(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """`--home` and `--config` before the command; after it they belong to its parser."""
    first = next((i for i, word in enumerate(arguments) if _begins(arguments, i)), len(arguments))
    if not first:
        return argparse.Namespace(home=None, config=None), arguments
    parser = _Parser(prog="houston", add_help=False, allow_abbrev=False)
    _add_flags(parser)
    known, rest = parser.parse_known_args(arguments[:first])
    return known, rest + arguments[first:]


def _begins(arguments: list[str], index: int) -> bool:
    """Whether a command's words begin here (a flag's value before it does not count)."""
    before = arguments[index - 1] if index else ""
    known = any(arguments[index] == command.words[0] for command in COMMANDS)
    return known and before not in ("--home", "--config")


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", metavar="DIR", help="data folder (or HOUSTON_HOME)")
    parser.add_argument("--config", metavar="FILE", help="configuration (or HOUSTON_CONFIG)")


def _find(words: list[str]) -> Command | None:
    matching = [c for c in COMMANDS if tuple(words[: len(c.words)]) == c.words]
    return max(matching, key=lambda c: len(c.words), default=None)


def _overview(words: list[str]) -> int:
    """Help for `houston` or for a group such as `houston rollout`."""
    asked = not words or words[0] in ("-h", "--help", "help")
    group = [] if asked or words[0].startswith("-") else words[:1]
    shown = [c for c in COMMANDS if c.words[: len(group)] == tuple(group)]
    if not asked and (not shown or words[1:2] not in ([], ["-h"], ["--help"])):
        out.note(f"houston: there is no command `{' '.join(words)}`.\n  next: houston --help")
        return int(ExitCode.USAGE)
    out.line("usage: houston [--home DIR] [--config FILE] COMMAND …\n")
    for command in shown:
        out.line(f"  {' '.join(command.words):<16} {command.help}")
    out.line("\nEvery command takes --help; every reading command takes --json.")
    return int(ExitCode.DONE) if asked or words[1:] else int(ExitCode.USAGE)


if __name__ == "__main__":
    sys.exit(main())
