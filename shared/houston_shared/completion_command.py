"""`houston completion bash|zsh|fish`: a script with which a shell completes commands, flags, names.

Made by shtab from the parsers of all commands, which are built only here. What an argument names
shows in its metavar. Names in the home and in the configuration are asked for at each completion by
`houston completion --names KIND`, which reads them and nothing else; those of packaged suites,
recipes and dialects stand in the script.
"""

import argparse
import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from houston_shared import command_output, command_parser
from houston_shared.command_table import COMMANDS, CommandSpec
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, UsageError

WHERE = {
    "bash": "~/.local/share/bash-completion/completions/houston",
    "zsh": "_houston in a folder of $fpath",
    "fish": "~/.config/fish/completions/houston.fish",
}
"""The file that each shell reads when a terminal opens, or when `houston` is completed first."""
KINDS = {
    "R": "rollouts",
    "POLICY": "policies",
    "MODEL|POLICY": "policies",
    "RUN": "runs",
    "TASK": "tasks",
    "SUITE/NAME": "results",
    ("BEFORE", "AFTER"): "results",
    "ENGINE": "engines",
    "HOST": "hosts",
}
"""By metavar, what an argument names in the home or in the configuration."""
SUITES = "houston_daemon.suites.suite_catalog:SUITES"
RL_RECIPES = "houston_daemon.training.rl.rl_recipe:RECIPES_FOLDER"
RECIPES = {
    ("train", "sft"): "houston_daemon.training.sft.sft_recipe:RECIPES_FOLDER",
    ("train", "dapo"): RL_RECIPES,
    ("train", "grpo"): RL_RECIPES,
    ("train", "echo"): RL_RECIPES,
    ("train", "prm"): "houston_daemon.training.prm.prm_recipe:RECIPES_FOLDER",
    ("export",): "houston_daemon.training.export.export_recipe:RECIPES",
    ("experiment",): "houston_daemon.experiments.experiment_recipe:packaged_recipes",
}
"""By command, what gives the names of its packaged recipes: a function, names, or their folder."""
SAFE_NAME = re.compile(r"[\w@.:/+-]+")
"""Names that a shell takes as they are; bash would expand others."""
BASH_ENTRY = r"""
# Bash also breaks words at @ : and =, which names such as policy@2 hold: here they are whole. $2 is
# the part of the last word that is replaced.
_houston() {
  local typed="${COMP_LINE:0:COMP_POINT}" there="" last
  local -a words
  read -ra words <<< "$typed"
  [[ "$typed" == *[[:space:]] ]] && words+=("")
  last="${words[-1]}"
  if [[ "$last" == --*=* ]]; then
    words[-1]="${last%%=*}" last="${last#*=}"
    words+=("$last")
  fi
  [[ "$last" == *"$2" ]] && there="${last%"$2"}"
  COMP_WORDS=("${words[@]}") COMP_CWORD=$(( ${#words[@]} - 1 ))
  _shtab_houston
  COMPREPLY=("${COMPREPLY[@]#"$there"}")
}
complete -o bashdefault -F _houston houston houston-agents"""
"""Stands in the place of the line that shtab ends a script for bash with."""


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """`SHELL`, `--names`."""
    places = "; ".join(f"{shell}: {file}" for shell, file in WHERE.items())
    parser.add_argument(
        "shell",
        nargs="?",
        choices=tuple(WHERE),
        help=f"write what it prints into the shell's file ({places})",
    )
    parser.add_argument(
        "--names",
        choices=tuple(dict.fromkeys(KINDS.values())),
        help="used by the script: print names of this kind, one per line",
    )


def run_completion(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print the script, or names."""
    if arguments.names:
        for name in read_names(arguments.names, loaded):
            if SAFE_NAME.fullmatch(name):
                command_output.print_line(name)
    elif arguments.shell:
        command_output.print_line(completion_script(arguments.shell))
    else:
        raise UsageError("Name a shell.", "", "houston completion bash")
    return int(ExitCode.DONE)


def completion_script(shell: str) -> str:
    """The script for a shell, without a newline at its end."""
    import shtab

    script: str = shtab.complete(build_whole_parser(), shell).rstrip("\n")
    return script.rpartition("\ncomplete ")[0] + BASH_ENTRY if shell == "bash" else script


def read_names(kind: str, loaded: LoadedConfiguration) -> Iterable[str]:
    """The names of a kind (`KINDS`). Raises HoustonError where the home cannot be read."""
    if kind == "engines":
        return dict.fromkeys(("embedded", *loaded.config.engines))
    if kind == "hosts":
        return list(loaded.config.hosts.named)
    if kind == "results":
        suites = loaded.home.path / "suites"
        return sorted(f"{file.parent.name}/{file.stem}" for file in suites.glob("*/*.json"))
    from houston_shared.store import policy_queries, rollout_queries
    from houston_shared.store.store_reader import Reader

    with Reader(loaded.home) as reader:
        if kind == "rollouts":
            return [row.id for row in reader.run(rollout_queries.list_rollouts())]
        if kind == "tasks":
            return [task.name for task in reader.run(rollout_queries.list_tasks())]
        if kind == "policies":
            return [policy.name for policy in reader.run(policy_queries.list_policies())]
        return [run.id for run in reader.run(policy_queries.list_training_runs())]


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
        metavar = action.metavar
        if metavar in KINDS:
            action.complete = _names_completer(KINDS[metavar])
        elif action.choices is None and (packaged := _packaged_names(command, metavar)):
            action.choices = packaged
        elif metavar == "DIR":
            action.complete = shtab.DIRECTORY
        elif "FILE" in (metavar or "") or metavar == "TASK.toml":
            action.complete = shtab.FILE


def _names_completer(kind: str) -> dict[str, Any]:
    """How each shell completes names of a kind, for shtab; what cannot be read is no name."""
    command = f"houston completion --names {kind} 2>/dev/null"
    function = f"_houston_{kind}"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({command})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({command})" -- "$1"; }}\n',
            "zsh": f'{function}() {{ compadd -- ${{(f)"$({command})"}}; }}\n',
        },
    }


def _packaged_names(command: CommandSpec, metavar: Any) -> list[str]:
    """Names that come with Houston and that an argument takes; none for most."""
    if metavar == "DIALECT":
        from houston_shared.plugins import plugin_names

        return plugin_names("houston.dialects")
    if metavar == "RECIPE":
        return _named_in(RECIPES[command.words])
    return _named_in(SUITES) if metavar in ("SUITE", "SUITE|FILE", "TASK|SUITE") else []


def _named_in(place: str) -> list[str]:
    """The names that `module:attribute` holds, gives when it is called, or has as files of a
    folder."""
    module, _, attribute = place.partition(":")
    value: Iterable[str] | Path | Callable[[], Iterable[str]]
    value = getattr(importlib.import_module(module), attribute)
    if isinstance(value, Path):
        return sorted(file.stem for file in value.glob("*.toml"))
    return list(value() if callable(value) else value)
