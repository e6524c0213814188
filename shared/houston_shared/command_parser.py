"""The parser of one command: its flags, its help with an example, and what it says of a slip.

Modules of commands add their own arguments. Nothing here runs a command.
"""

import argparse
import importlib
import re
from typing import Any, NoReturn

from houston_shared import command_output
from houston_shared.command_table import CommandSpec
from houston_shared.errors import ExitCode, did_you_mean

UNKNOWN_WORD = re.compile(r"(?:unrecognized arguments: |invalid choice: )'?([^'\s]+)")
"""What argparse says of a word that it does not know."""


class CommandParser(argparse.ArgumentParser):
    """An argument parser that writes as everything of Houston does."""

    example = ""
    """What its help ends with."""

    def format_help(self) -> str:
        """As argparse does, and the example."""
        text = super().format_help()
        return f"{text}\nexample:\n  {self.example}\n" if self.example else text

    def print_help(self, file: Any = None) -> None:
        """As argparse does, but that it could not be written is an error."""
        command_output.print_line(self.format_help().rstrip("\n"))
        command_output.flush_stdout()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and what was meant, and end with the code of wrong usage."""
        text = f"{self.format_usage()}{self.prog}: error: {message}"
        unknown = UNKNOWN_WORD.search(message)
        if unknown and (next := did_you_mean(unknown[1].partition("=")[0], self._known_words())):
            text += f"\n  next: {next}"
        command_output.print_note(text)
        raise SystemExit(int(ExitCode.USAGE))

    def _known_words(self) -> list[str]:
        """Its flags, and the values that are allowed for arguments."""
        words = [flag for action in self._actions for flag in action.option_strings]
        return words + [str(value) for action in self._actions for value in action.choices or ()]

    def _print_message(self, message: str, file: Any = None) -> None:
        """What argparse has to say quotes arguments, and is safe like every other line."""
        command_output.print_note(message.removesuffix("\n"))


def add_global_flags(parser: argparse.ArgumentParser) -> None:
    """`--home` and `--config`, which every command takes."""
    parser.add_argument("--home", metavar="DIR", help="data folder (or HOUSTON_HOME)")
    parser.add_argument("--config", metavar="FILE", help="configuration (or HOUSTON_CONFIG)")


def build_parser(command: CommandSpec) -> CommandParser:
    """The parser of a command; imports the command's module."""
    parser = CommandParser(
        "houston " + " ".join(command.words), description=command.help, allow_abbrev=False
    )
    parser.example = f"{parser.prog} {command.example}" if command.example else ""
    add_global_flags(parser)
    add_command_arguments(command, parser)
    return parser


def add_command_arguments(command: CommandSpec, parser: argparse.ArgumentParser) -> None:
    """Add a command's own arguments to a parser; imports the command's module."""
    module = importlib.import_module(command.module)
    getattr(module, f"add_{function_suffix(command)}_arguments")(parser)


def function_suffix(command: CommandSpec) -> str:
    """How its functions are named: `rollout_list` for `add_rollout_list_arguments`."""
    return "_".join(command.words).replace("-", "_")
