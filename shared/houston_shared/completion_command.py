"""`houston completion bash|zsh|fish`: a script with which a shell completes commands and flags.

Made by shtab from the parsers of all commands, which are built only here. A rollout is completed
with the ids that the home has; nothing else is looked up.
"""

import argparse
from typing import Any

from houston_shared import command_output, command_parser
from houston_shared.command_table import COMMANDS, CommandSpec
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode

WHERE = {
    "bash": "~/.local/share/bash-completion/completions/houston",
    "zsh": "_houston in a folder of $fpath",
    "fish": "~/.config/fish/completions/houston.fish",
}
"""The file that each shell reads when a terminal opens, or when `houston` is completed first."""
LIST_IDS = """houston rollout list --json 2>/dev/null | sed 's/^{"rollout":"\\([^"]*\\)".*/\\1/'"""
"""Prints the ids of the home's rollouts, a line each."""
ROLLOUT_IDS = {
    "bash": "_houston_rollout_ids",
    "zsh": "_houston_rollout_ids",
    "fish": f"({LIST_IDS})".replace("$", "\\$").replace('"', '\\"'),
    "preamble": {
        "bash": f'_houston_rollout_ids() {{ compgen -W "$({LIST_IDS})" -- "$1"; }}\n',
        "zsh": f'_houston_rollout_ids() {{ compadd -- ${{(f)"$({LIST_IDS})"}}; }}\n',
    },
}
"""How each shell completes a rollout, for shtab."""


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """`SHELL`."""
    places = "; ".join(f"{shell}: {file}" for shell, file in WHERE.items())
    parser.add_argument(
        "shell", choices=tuple(WHERE), help=f"write what it prints into the shell's file ({places})"
    )


def run_completion(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print the script."""
    import shtab

    command_output.print_line(shtab.complete(build_whole_parser(), arguments.shell).rstrip("\n"))
    return int(ExitCode.DONE)


def build_whole_parser() -> argparse.ArgumentParser:
    """One parser with every command below it; imports the modules of all of them."""
    whole = command_parser.CommandParser("houston", description="ground station for LLM agents")
    command_parser.add_global_flags(whole)
    first_words = whole.add_subparsers()
    groups: dict[str, Any] = {}
    for command in COMMANDS:
        *group, last = command.words
        if not group:
            _add_parser(first_words, last, command)
            continue
        if group[0] not in groups:
            helps = ", ".join(each.words[1] for each in COMMANDS if each.words[0] == group[0])
            groups[group[0]] = first_words.add_parser(group[0], help=helps).add_subparsers()
        _add_parser(groups[group[0]], last, command)
    return whole


def _add_parser(parent: Any, word: str, command: CommandSpec) -> None:
    """Add a command's parser below `parent`, with what completes its arguments."""
    parser = parent.add_parser(word, help=command.help, description=command.help)
    command_parser.add_global_flags(parser)
    command_parser.add_command_arguments(command, parser)
    import shtab

    for action in parser._actions:
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if metavar == "R":
            action.complete = ROLLOUT_IDS
        elif metavar == "DIR":
            action.complete = shtab.DIRECTORY
        elif "FILE" in metavar or metavar == "TASK.toml":
            action.complete = shtab.FILE
