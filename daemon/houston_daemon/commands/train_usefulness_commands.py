"""`houston train usefulness`: whether a critic was of use, by thirds of one or several runs (ECHO).

Figures are `training.echo.critic_usefulness`. It reads what runs kept and changes nothing.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from houston_daemon.training.echo import critic_usefulness
from houston_daemon.training.echo.critic_usefulness import NEAR_FULL_SCORE, PHASES, RefinedScores
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import find_rl_run
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode

NOTHING_SHOWN = "Nothing was shown."
_HEAD = (
    f"{'':<13}  {'all that were criticised':<30}  from half the score on\n"
    f"{'':<13}  attempts   gain  raised  lowered  attempts   gain  to full score"
)

ByPhase = dict[str, list[RefinedScores]]


def add_train_usefulness_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN [RUN ...]`, `--json`."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="runs of houston train echo (see train list)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_train_usefulness(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Read, count, say: each run, then runs of the same kind together. Raises HoustonError."""
    kinds: dict[str, dict[str, ByPhase]] = defaultdict(dict)
    named = [find_rl_run(loaded.home, name, NOTHING_SHOWN) for name in arguments.runs]
    for run, folder in {folder.path.name: folder for folder in named}.items():
        updates = critic_usefulness.critic_figures(folder, NOTHING_SHOWN)
        scores = critic_usefulness.refined_scores(folder, loaded.home, updates)
        kinds[_kind(folder.spec.recipe)][run] = critic_usefulness.scores_by_phase(scores, updates)
    groups = [
        {"runs": list(runs), "critic": kind, "phases": _figures(runs)}
        for kind, by_run in kinds.items()
        for runs in [{run: phases} for run, phases in by_run.items()]
        + ([by_run] if len(by_run) > 1 else [])
    ]
    if arguments.json:
        command_output.print_json_line({"near_full_score": NEAR_FULL_SCORE, "shown": groups})
    else:
        _print(groups)
    return int(ExitCode.DONE)


def _kind(recipe: RlRecipe) -> str:
    return recipe.critic if recipe.gain == "saturation" else f"{recipe.critic}, {recipe.gain} gain"


def _figures(runs: Mapping[str, ByPhase]) -> dict[str, Any]:
    """By phase, of all these runs."""
    return {
        phase: critic_usefulness.usefulness([each for run in runs.values() for each in run[phase]])
        for phase in PHASES
    }


def _print(shown: list[dict[str, Any]]) -> None:
    command_output.print_line(_HEAD)
    for part in shown:
        runs = part["runs"]
        name = runs[0] if len(runs) == 1 else f"these {len(runs)} together"
        command_output.print_line(f"{name}, critic {part['critic']}")
        for phase, figures in part["phases"].items():
            near = figures["near_full_score"]
            command_output.print_line(
                f" {phase:<12}  {_counts(figures)}  {_percent(figures['raised']):>6}"
                f"  {_percent(figures['lowered']):>7}  {_counts(near)}  {_interval(near)}"
            )


def _counts(figures: Mapping[str, Any]) -> str:
    gain = "" if figures["gain"] is None else f"{figures['gain']:+.2f}"
    return f"{figures['attempts']:>8}  {gain:>5}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _interval(near: Mapping[str, Any]) -> str:
    share = near["to_full"]
    if share is None:
        return "none"
    return f"{share['value']:.1%} [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"
