"""The command `houston`: finds the module of a command and runs it.

It knows the table of commands and nothing of what they do. A module is imported only when one of
its commands runs, so that `houston guide` never pays for Textual or torch. For a command such as
`rollout list` it has `add_rollout_list_arguments(parser)` and
`run_rollout_list(arguments, loaded)`, which returns the exit code.
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

from houston_shared import command_output
from houston_shared.config import Configuration, LoadedConfiguration, load_configuration
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.safe_text import safe


class CommandSpec(NamedTuple):
    """One command: its words, where it lives, one line of help."""

    words: tuple[str, ...]
    module: str
    help: str


def _build_commands(*rows: tuple[str, str, str]) -> tuple[CommandSpec, ...]:
    """rows: words, module, help; `daemon.x` is short for `houston_daemon.commands.x`."""
    commands = []
    for words, module, help in rows:
        if not module.startswith("houston_"):
            module = f"houston_{module.replace('.', '.commands.')}"
        commands.append(CommandSpec(tuple(words.split()), module, help))
    return tuple(commands)


COMMANDS = _build_commands(
    ("demo", "daemon.demo_commands", "the whole thing on the embedded model"),
    ("daemon start", "daemon.daemon_commands", "start the daemon; returns when ready"),
    ("daemon stop", "daemon.daemon_commands", "drain and stop the daemon"),
    ("daemon restart", "daemon.daemon_commands", "stop and start; engines go on"),
    ("daemon status", "daemon.daemon_status_commands", "show what the daemon is doing"),
    ("daemon install-service", "daemon.daemon_commands", "write its systemd unit"),
    ("daemon logs", "daemon.daemon_status_commands", "show or follow its log"),
    ("task new", "daemon.task_commands", "write a task folder to start from"),
    ("task import", "daemon.task_commands", "import a task of InnovatorBench"),
    ("task validate", "daemon.task_commands", "check a task file"),
    ("task list", "console.rollout_view_commands", "tasks of this home"),
    ("rollout start", "daemon.rollout_operator_commands", "start rollouts of a task"),
    ("ask", "daemon.ask_commands", "ask a question; answer, steps and sources"),
    ("rollout list", "console.rollout_view_commands", "all rollouts, by need"),
    ("rollout show", "console.rollout_view_commands", "one rollout"),
    ("rollout html", "console.rollout_html_command", "one rollout as a page for a browser"),
    ("rollout people", "console.rollout_view_commands", "who looked, and for how long"),
    ("rollout compare", "console.rollout_view_commands", "two rollouts side by side"),
    ("rollout pause", "console.rollout_control_commands", "pause a rollout"),
    ("rollout resume", "console.rollout_control_commands", "resume a paused rollout"),
    ("rollout cancel", "console.rollout_control_commands", "end a rollout for good"),
    ("rollout branch", "console.rollout_control_commands", "a sibling from a step"),
    ("rollout restore", "daemon.rollout_operator_commands", "a workspace as it was"),
    (
        "rollout printed",
        "daemon.rollout_operator_commands",
        "a terminal's log from another machine",
    ),
    ("rollout clean", "console.rollout_control_commands", "free its part of the host"),
    ("rollout archive", "daemon.rollout_erasure_commands", "into a file, out of the home"),
    ("rollout erase", "daemon.rollout_erasure_commands", "erase a step, or a leaked secret"),
    ("guide", "console.guidance_commands", "say something to an agent"),
    ("guidance", "console.guidance_commands", "what was said, and when it was heard"),
    ("since", "console.since_command", "what happened since you were here"),
    ("verdict", "console.annotation_commands", "keep or mask steps; what was said of them"),
    ("judge", "daemon.judge_commands", "judge steps by rules or a model; report agreement"),
    ("label", "daemon.label_commands", "what each decision was worth, for houston train prm"),
    ("critique", "daemon.critique_commands", "what a critic would have an agent do otherwise"),
    ("bookmark", "console.annotation_commands", "mark a step for everybody, with a note"),
    ("claim", "console.rollout_control_commands", "look after a rollout; leave a note"),
    ("steps", "console.step_commands", "the steps of a rollout"),
    ("engine check", "daemon.engine_commands", "whether rollouts can sample from an engine"),
    ("policy list", "console.policy_view_commands", "what was trained; what is active"),
    ("policy show", "console.policy_view_commands", "where a policy comes from"),
    ("policy activate", "console.policy_view_commands", "have new rollouts sample with it"),
    ("policy rollback", "console.policy_view_commands", "back to the one before"),
    ("policy merge", "daemon.policy_commands", "base and adapter as one model"),
    ("policy export", "daemon.policy_commands", "as a GGUF file"),
    ("policy import", "daemon.policy_commands", "import an external policy"),
    ("policy pull", "daemon.policy_commands", "import one of the Hugging Face hub"),
    ("policy push", "daemon.policy_commands", "to the Hugging Face hub, with its lineage"),
    ("policy tiny", "daemon.tiny_policy_commands", "make a small model that learns in minutes"),
    ("policy warm", "daemon.warm_up_commands", "warm a language model up for a suite"),
    ("suite list", "daemon.suite_commands", "generated tasks, and how models do on them"),
    ("suite run", "daemon.suite_commands", "how a policy does on a suite"),
    ("evaluate", "daemon.evaluate_commands", "how an agent does, before and after; two results"),
    ("train sft", "daemon.train_commands", "train a model on rows of rollouts"),
    ("train dapo", "daemon.train_rl_commands", "train a policy on rollouts of a suite (DAPO)"),
    ("train grpo", "daemon.train_rl_commands", "the same with GRPO's settings"),
    (
        "train echo",
        "daemon.train_echo_commands",
        "a policy and its critic (ECHO); people's words",
    ),
    ("train drift", "daemon.train_drift_commands", "how a run's failures changed (ECHO)"),
    ("train prm", "daemon.train_prm_commands", "train a process reward model on labels"),
    ("train list", "console.training_run_commands", "training runs, how far they are"),
    ("train show", "console.training_run_commands", "one training run"),
    ("train cancel", "console.training_run_commands", "end a training run"),
    ("context", "console.step_commands", "what the model saw at a step"),
    ("files", "console.step_commands", "files that were changed, with diffs; searches"),
    ("search", "console.search_command", "find text in all rollouts"),
    ("tail", "console.journal_commands", "follow steps as they come"),
    ("console", "houston_console.console_command", "the annotators' screen"),
    ("export", "daemon.export_commands", "rows as a file that others train on"),
    ("notify test", "daemon.notify_commands", "send a message to everywhere in [notify] urls"),
    ("verify", "daemon.maintenance_commands", "check every byte of the store"),
    ("repair", "daemon.maintenance_commands", "set damaged events aside, rebuild the rest"),
    ("backup", "daemon.maintenance_commands", "copy the home while the daemon runs"),
    ("log", "console.journal_commands", "the journal; --audit for who did what"),
    ("host-serve", "daemon.host_serve_commands", "what another node starts here over SSH"),
    ("experiment", "daemon.experiment_commands", "what guidance and masks are worth, measured"),
    ("mcp serve", "daemon.mcp_serve_commands", "our python and search tools, over MCP"),
    (
        "env serve",
        "daemon.env_serve_commands",
        "a task or a suite as OpenEnv, for others' trainers",
    ),
    ("doctor", "daemon.doctor_commands", "check this machine; fetch model and engine"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (docs/design.md#commands-and-formats)."""
    try:
        return _run_reporting_errors(list(sys.argv[1:] if argv is None else argv))
    finally:
        # The kernel takes back all at once what the interpreter would look through, object by
        # object, before it ends: 18 of the 95 ms of `houston guide`.
        gc.freeze()


def _run_reporting_errors(arguments: list[str]) -> int:
    """The exit code of a command, whatever it raises: every error becomes a sentence."""
    try:
        command_output.prepare_streams()
        code = _run_command(arguments)
        command_output.flush_stdout()
        return code
    except HoustonError as problem:
        command_output.print_error(problem)
        command_output.finish_streams()
        return int(problem.code)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing is left to say to it.
        command_output.abandon_stdout()
        return int(ExitCode.DONE)
    except KeyboardInterrupt:
        return 130
    except Exception as problem:  # noqa: BLE001 the last resort: a fault of ours, said as such
        _report_internal_error(problem, arguments)
        command_output.finish_streams()
        return int(ExitCode.FAILED)


def _report_internal_error(problem: Exception, arguments: list[str]) -> None:
    """What no part of Houston expected; the trace is for who mends it."""
    debugging = os.environ.get("HOUSTON_DEBUG") == "1"
    if debugging:
        import traceback

        command_output.print_note(traceback.format_exc())
    problem_text = str(problem).strip().partition("\n")[0]
    fault = type(problem).__name__ + (f": {problem_text}" if problem_text else "")
    words = " ".join(arguments[:2])
    command_output.print_error(
        HoustonError(
            f"This is a fault of Houston: {fault}.",
            "What was asked may not have been done.",
            "report it"
            if debugging
            else f"report it, with what HOUSTON_DEBUG=1 houston {words} … says",
        )
    )


def _run_command(arguments: list[str]) -> int:
    _check_arguments_are_text(arguments)
    flags, rest = _read_global_flags(arguments)
    if rest[:1] == ["--version"]:
        from importlib.metadata import version

        command_output.print_line(f"houston {version('houston-agents')}")
        return int(ExitCode.DONE)
    command = _find_command(rest)
    if command is None:
        return _print_overview(rest)
    module: ModuleType = importlib.import_module(command.module)
    name = "_".join(command.words).replace("-", "_")
    parser = _Parser("houston " + " ".join(command.words), description=command.help)
    _add_global_flags(parser)
    getattr(module, f"add_{name}_arguments")(parser)
    parsed = parser.parse_args(rest[len(command.words) :])
    home = parsed.home or flags.home
    parsed.home_given = bool(home or os.environ.get("HOUSTON_HOME"))
    loaded = _load_configuration(command, home, parsed.config or flags.config)
    return int(getattr(module, f"run_{name}")(parsed, loaded))


COMMANDS_THAT_NEED_ONLY_A_HOME = (("daemon", "status"), ("daemon", "stop"), ("daemon", "logs"))
"""Commands that need to know nothing but the home."""


def _load_configuration(
    command: CommandSpec, home: str | None, file: str | None
) -> LoadedConfiguration:
    """The configuration; a daemon that runs is asked and stopped whatever its file says now."""
    try:
        return load_configuration(home, file)
    except ConfigurationError as problem:
        named = home or os.environ.get("HOUSTON_HOME")
        if command.words not in COMMANDS_THAT_NEED_ONLY_A_HOME or not named:
            raise
        command_output.print_note(f"warning: {problem.cause}")
        return LoadedConfiguration(
            Configuration(), Home(Path(named).expanduser().absolute()), "defaults"
        )


def _check_arguments_are_text(arguments: list[str]) -> None:
    """Bytes that are no text can be no name, no number and nothing to say."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise HoustonError(
                f"The argument {safe(argument)!r} is not UTF-8 text.", code=ExitCode.USAGE
            )


class _Parser(argparse.ArgumentParser):
    def print_help(self, file: Any = None) -> None:
        """As argparse does, but that it could not be written is an error."""
        command_output.print_line(self.format_help().rstrip("\n"))
        command_output.flush_stdout()

    def _print_message(self, message: str, file: Any = None) -> None:
        """What argparse has to say quotes arguments, and is safe like every other line."""
        command_output.print_note(message.removesuffix("\n"))


def _read_global_flags(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """`--home` and `--config` before the command; after it they belong to its parser."""
    first = next(
        (i for i, word in enumerate(arguments) if _is_command_at(arguments, i)), len(arguments)
    )
    if not first:
        return argparse.Namespace(home=None, config=None), arguments
    parser = _Parser(prog="houston", add_help=False, allow_abbrev=False)
    _add_global_flags(parser)
    flags, rest = parser.parse_known_args(arguments[:first])
    return flags, rest + arguments[first:]


def _is_command_at(arguments: list[str], index: int) -> bool:
    """Whether a command's words begin here (a flag's value before it does not count)."""
    before = arguments[index - 1] if index else ""
    begins = any(arguments[index] == command.words[0] for command in COMMANDS)
    return begins and before not in ("--home", "--config")


def _add_global_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", metavar="DIR", help="data folder (or HOUSTON_HOME)")
    parser.add_argument("--config", metavar="FILE", help="configuration (or HOUSTON_CONFIG)")


def _find_command(words: list[str]) -> CommandSpec | None:
    matching = [c for c in COMMANDS if tuple(words[: len(c.words)]) == c.words]
    return max(matching, key=lambda c: len(c.words), default=None)


def _print_overview(words: list[str]) -> int:
    """Help for `houston` or for a group such as `houston rollout`."""
    wants_help = not words or words[0] in ("-h", "--help", "help")
    group = [] if wants_help or words[0].startswith("-") else words[:1]
    commands_shown = [c for c in COMMANDS if c.words[: len(group)] == tuple(group)]
    if not wants_help and (not commands_shown or words[1:2] not in ([], ["-h"], ["--help"])):
        command_output.print_note(
            f"houston: there is no command `{' '.join(words)}`.\n  next: houston --help"
        )
        return int(ExitCode.USAGE)
    command_output.print_line("usage: houston [--home DIR] [--config FILE] COMMAND …\n")
    for command in commands_shown:
        command_output.print_line(f"  {' '.join(command.words):<16} {command.help}")
    command_output.print_line("\nEvery command takes --help; every reading command takes --json.")
    return int(ExitCode.DONE) if wants_help or words[1:] else int(ExitCode.USAGE)


if __name__ == "__main__":
    sys.exit(main())
