"""`houston train echo`: train a policy and its critic on rollouts of a suite; with `--human`, a
critic on what people said to agents.

The first uses `train_rl_commands` with the recipe `echo`. Ctrl-C stops following; the run
continues. Training itself is in `training.rl` and `training.critic`, which are not imported here.
"""

import argparse

from houston_daemon.commands import train_rl_commands
from houston_daemon.commands.train_rl_commands import (
    assign_gpus,
    follow_and_report,
    queue_daemon_run,
)
from houston_daemon.training.critic import create_critic_run
from houston_daemon.training.critic.people_examples import PeopleExamples
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon
from houston_shared.errors import UsageError
from houston_shared.times_and_counts import pluralize


def add_train_echo_arguments(parser: argparse.ArgumentParser) -> None:
    """As of `train dapo`, and `--human`."""
    train_rl_commands.add_train_rl_arguments(parser, "echo")
    parser.add_argument(
        "--human",
        nargs="*",
        metavar="R",
        help="train a critic on the guidance given to these rollouts, or to all; docs/critic.md",
    )


def run_train_echo(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Make the run, start it, follow it. Raises HoustonError."""
    if arguments.human is None:
        return train_rl_commands.run_train_rl(arguments, loaded, "echo")
    _refuse_rl_flags(arguments)
    require_daemon(loaded.home)
    request = create_critic_run.CriticRequest(
        rollouts=arguments.human,
        settings=arguments.settings,
        engine=arguments.engine,
        base=arguments.base,
        name=arguments.name,
    )
    folder, examples = create_critic_run.create_critic_run(loaded, request)
    command_output.print_note(_examples_sentence(examples))
    assign_gpus(arguments, loaded, folder, folder.spec)
    queue_daemon_run(loaded, folder, folder.spec, create_critic_run.RUN_KIND, request.base)
    return follow_and_report(
        arguments,
        loaded,
        folder,
        lambda state: {"result": folder.result if state == "finished" else None},
        _advice,
    )


def _advice(policy: str) -> str:
    return (
        f'houston critique R --policy {policy}, or critic = "{policy}" in [review];'
        f" houston train echo … --set critic_policy={policy}"
    )


def _refuse_rl_flags(arguments: argparse.Namespace) -> None:
    """Raise HoustonError for flags of training on a suite."""
    flags = [f"--{name}" for name in ("suite", "resume", "recipe") if getattr(arguments, name)]
    if flags:
        raise UsageError(
            f"--human trains a critic on what people said: it takes no {', '.join(flags)}.",
            NOTHING_TRAINED_MESSAGE,
            "houston train echo --human [R …] [--engine E] [--base POLICY] [--set KEY=VALUE]",
        )


def _examples_sentence(examples: PeopleExamples) -> str:
    """What people taught, in words."""
    gain_count = sum(example.gain is not None for example in examples.said)
    parts = [
        f"{pluralize(len(examples.said), 'message')} of people, {gain_count} with a known gain",
        f"{pluralize(len(examples.pairs), 'pair')} of a text that was sent and one that was not",
    ]
    if examples.unpaired:
        parts.append(
            f"{pluralize(examples.unpaired, 'draft')} turned down without other words, not used"
        )
    if examples.gone:
        parts.append(f"texts of {pluralize(examples.gone, 'rollout')} are gone")
    return "; ".join(parts)
