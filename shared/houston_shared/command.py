"""The command `houston`: finds the module of a command in `command_table` and runs it.

It knows nothing of what commands do. A module is imported only when one of its commands runs, so
that `houston guide` never pays for Textual or torch. For a command such as `rollout list` it has
`add_rollout_list_arguments(parser)` and `run_rollout_list(arguments, loaded)`, which returns the
exit code.
"""

import argparse
import gc
import importlib
import os
import re
import sys
from collections.abc import Sequence
from itertools import takewhile

from houston_shared import command_output, command_parser
from houston_shared.command_parser import CommandParser, add_global_flags
from houston_shared.command_table import COMMANDS, SECTIONS, CommandSpec
from houston_shared.config import (
    Configuration,
    LoadedConfiguration,
    expand_path,
    load_configuration,
)
from houston_shared.errors import (
    EXIT_CODE_MEANINGS,
    ConfigurationError,
    ExitCode,
    HoustonError,
    UsageError,
    close_matches,
)
from houston_shared.home import Home
from houston_shared.safe_text import safe


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
            f"This is a bug in Houston: {fault}.",
            "The command may not have been carried out.",
            "report it"
            if debugging
            else f"report it, with the output of HOUSTON_DEBUG=1 houston {words} …",
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
    parser = command_parser.build_parser(command)
    parsed = parser.parse_args(rest[len(command.words) :])
    home = parsed.home or flags.home
    parsed.home_given = bool(home or os.environ.get("HOUSTON_HOME"))
    loaded = _load_configuration(command, home, parsed.config or flags.config)
    run = f"run_{command_parser.function_suffix(command)}"
    return int(getattr(importlib.import_module(command.module), run)(parsed, loaded))


HOME_ONLY_COMMANDS = (("daemon", "status"), ("daemon", "stop"), ("daemon", "logs"))
"""Commands that need to know nothing but the home."""


def _load_configuration(
    command: CommandSpec, home: str | None, file: str | None
) -> LoadedConfiguration:
    """The configuration; a daemon that runs is asked and stopped whatever its file says now."""
    try:
        return load_configuration(home, file)
    except ConfigurationError as problem:
        named = home or os.environ.get("HOUSTON_HOME")
        if command.words not in HOME_ONLY_COMMANDS or not named:
            raise
        command_output.print_note(f"warning: {problem.cause}")
        return LoadedConfiguration(Configuration(), Home(expand_path(named).absolute()), "defaults")


def _check_arguments_are_text(arguments: list[str]) -> None:
    """Bytes that are no text can be no name, no number and nothing to say."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"The argument {safe(argument)!r} is not UTF-8 text.")


def _read_global_flags(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """`--home` and `--config` before the command; after it they belong to its parser."""
    first = next(
        (i for i, word in enumerate(arguments) if _is_command_at(arguments, i)), len(arguments)
    )
    if not first:
        return argparse.Namespace(home=None, config=None), arguments
    parser = CommandParser(prog="houston", add_help=False, allow_abbrev=False)
    add_global_flags(parser)
    flags, rest = parser.parse_known_args(arguments[:first])
    return flags, rest + arguments[first:]


def _is_command_at(arguments: list[str], index: int) -> bool:
    """Whether a command's words begin here (a flag's value before it does not count)."""
    before = arguments[index - 1] if index else ""
    begins = any(arguments[index] == command.words[0] for command in COMMANDS)
    return begins and before not in ("--home", "--config")


def _find_command(words: list[str]) -> CommandSpec | None:
    matching = [c for c in COMMANDS if tuple(words[: len(c.words)]) == c.words]
    return max(matching, key=lambda c: len(c.words), default=None)


def _print_overview(words: list[str]) -> int:
    """Help for `houston` or for a group such as `houston rollout`."""
    wants_help = not words or words[0] in ("-h", "--help", "help")
    group = () if wants_help or words[0].startswith("-") else tuple(words[:1])
    subset = [command for command in COMMANDS if command.words[: len(group)] == group]
    if not wants_help and (not group or not subset or words[1:2] not in ([], ["-h"], ["--help"])):
        return _print_unknown_command(words)
    command_output.print_line("usage: houston [--home DIR] [--config FILE] COMMAND …")
    for subject, commands in SECTIONS.items():
        lines = [f"  {' '.join(each.words):<23} {each.help}" for each in commands if each in subset]
        if lines:
            command_output.print_line("\n".join(["", *([] if group else [f"{subject}:"]), *lines]))
    command_output.print_line(
        "\nEvery command takes --help, which shows an example; --json prints data."
    )
    if not group:
        codes = (f"{code.value} {meaning}" for code, meaning in EXIT_CODE_MEANINGS.items())
        command_output.print_line(f"Exit codes: {', '.join(codes)}.")
    return int(ExitCode.DONE) if wants_help or words[1:] else int(ExitCode.USAGE)


def _print_unknown_command(words: list[str]) -> int:
    """Say that there is no such command, and which ones may have been meant."""
    groups = dict.fromkeys(command.words[0] for command in COMMANDS)
    names = [" ".join(command.words) for command in COMMANDS]
    flags = ["--home", "--config", "--help", "--version"]
    typed = [words[0]] if words[0].startswith("-") else [" ".join(words[:2]), words[0]]
    named = words[:1] + list(takewhile(lambda word: not word.startswith("-"), words[1:]))
    near = [name for name in names if name in words[1:2]]
    near += [word for text in typed for word in close_matches(text, [*names, *groups, *flags])]
    near += [name for name in names if name.endswith(f" {words[0]}")]
    near += [" ".join(each.words) for each in COMMANDS if words[0] in _first_words(each.help)]
    suggested = "".join(f"houston {word}, or " for word in list(dict.fromkeys(near))[:2])
    command_output.print_note(
        f"houston: there is no command `{' '.join(named)}`.\n  next: {suggested}houston --help"
    )
    return int(ExitCode.USAGE)


def _first_words(help: str) -> set[str]:
    """What begins each part of a help text: mostly verbs, which name what the command does."""
    return {part.split()[0] for part in re.split("[;,]", help)} - _WORDS_LIKE_THE


_WORDS_LIKE_THE = {
    *("a", "all", "and", "as", "at", "before", "by", "for", "how", "into", "on", "one", "or"),
    *("our", "over", "the", "to", "two", "what", "where", "whether", "which", "who", "with"),
}
"""Words that begin a part of a help text and say nothing of the command."""


if __name__ == "__main__":
    sys.exit(main())
