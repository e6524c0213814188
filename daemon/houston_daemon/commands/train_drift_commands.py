"""`houston train drift`: how a run's failures changed, and whether its critic kept up (ECHO).

Figures are `training.echo.failure_drift`, pictures `training.echo.drift_pictures`.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.training.echo import critic_usefulness, drift_pictures, failure_drift
from houston_daemon.training.echo.failure_drift import NOTHING_MEASURED, DriftOrder
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, find_rl_run
from houston_shared import atomic_file, command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon
from houston_shared.errors import ExitCode
from houston_shared.policy_and_run_files import BASE_MODEL


def add_train_drift_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN`, who diagnoses, how many tasks, where pictures go."""
    parser.add_argument("run", metavar="RUN", help="run of houston train echo (see train list)")
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        default="",
        help="engine that writes diagnoses; default: the run's own",
    )
    parser.add_argument(
        "--policy", default="", metavar="POLICY", help="its policy; default: the run's first critic"
    )
    parser.add_argument(
        "-n", type=whole_number(1, 10_000), default=100, metavar="N", help="held-out tasks (100)"
    )
    parser.add_argument(
        "--critiques",
        type=whole_number(1, 64),
        default=1,
        metavar="K",
        help="critiques of each failed attempt that is refined (1)",
    )
    parser.add_argument(
        "--kept-only",
        action="store_true",
        help="run and ask nothing: draw only what the run stored",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="for pictures and figures; default: the run's folder",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_train_drift(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Measure, draw, say. Raises HoustonError."""
    folder = find_rl_run(loaded.home, arguments.run, NOTHING_MEASURED)
    figures = critic_usefulness.critic_figures(folder, NOTHING_MEASURED)
    scores = critic_usefulness.refined_scores(folder, loaded.home, figures)
    by_phase = critic_usefulness.scores_by_phase(scores, figures)
    out: Path = arguments.out or folder.path
    out.mkdir(parents=True, exist_ok=True)
    recipe = folder.spec.recipe
    title = f"{folder.spec.name}, {recipe.suite}, critic {recipe.critic}"
    drawn = _draw([
        (
            out / "usefulness.png",
            lambda file: drift_pictures.draw_usefulness([*figures.values()], title, file),
        ),
        (
            out / "densities.png",
            lambda file: drift_pictures.draw_densities(by_phase, title, file),
        ),
    ])  # fmt: skip
    measured: dict[str, Any] = {}
    if not arguments.kept_only:
        measured = _measure(arguments, loaded, folder)
        atomic_file.write_atomically(
            out / "drift.json", msgspec.json.format(msgspec.json.encode(measured), indent=1)
        )
        diagnoses = measured["diagnoses"]
        picture = out / "drift.png"
        if diagnoses:
            drawn += _draw(
                [(picture, lambda file: drift_pictures.draw_drift(diagnoses, title, file))]
            )
        else:
            command_output.print_note(f"{picture.name} was not drawn: the critic named no failure.")
    if arguments.json:
        summary = {key: value for key, value in measured.items() if key != "diagnoses"}
        command_output.print_json_line({**summary, "pictures": [str(file) for file in drawn]})
    else:
        for line in (*(drift_lines(measured) if measured else ()), *map(str, drawn)):
            command_output.print_line(line)
    return int(ExitCode.DONE)


def _measure(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, folder: RlRunFolder
) -> dict[str, Any]:
    require_daemon(loaded.home)
    recipe = folder.spec.recipe
    own = recipe.first_critic if arguments.engine in ("", recipe.asked_critic_engine) else ""
    order = DriftOrder(
        loaded=loaded,
        folder=folder,
        engine=arguments.engine or recipe.asked_critic_engine,
        critic=arguments.policy or own or BASE_MODEL,
        worlds=arguments.n,
        critiques=arguments.critiques,
        tell=_print_waiting,
    )
    return failure_drift.measure_drift(order)


def _print_waiting(line: str) -> None:
    """Print a line of who samples; an empty one says that it goes on."""
    if line:
        command_output.print_note(line)


def _draw(pictures: Sequence[tuple[Path, Callable[[Path], None]]]) -> list[Path]:
    """Those that could be drawn; says once which package the others need."""
    drawn = []
    for file, draw in pictures:
        try:
            draw(file)
        except ImportError as problem:
            command_output.print_note(
                f"{file.name} was not drawn: {problem.name} is not installed.\n"
                "  next: pip install 'houston-agents[train,memory]'"
            )
        else:
            drawn.append(file)
    return drawn


def drift_lines(measured: Mapping[str, Any]) -> list[str]:
    """For people, what was measured (`failure_drift.measure_drift`)."""
    lines = [
        f"{checkpoint['phase']}: {checkpoint['policy']}, score {checkpoint['score']:.2f},"
        f" {checkpoint['failed']} of {measured['worlds']} failed"
        for checkpoint in measured["checkpoints"]
    ]
    lines += [
        f"failures, {pair}: energy distance {distance['energy']:.4f}, p = {distance['p']:.2g}"
        for pair, distance in measured["drift"]["distances"].items()
    ]
    for phase, critics in measured["critics"].items():
        if not critics["attempts"]:
            lines.append(f"{phase}: no failed attempt to criticise")
            continue
        for critic in (critics[kind] for kind in ("first", "own") if kind in critics):
            lines.append(f"{phase}: {critic['critic']} {_gain_words(critic)}")
    return lines


def _gain_words(critic: Mapping[str, Any]) -> str:
    gain = critic["gain"]
    if gain["value"] is None:
        return "has an unknown gain: no refinement has ended"
    return (
        f"gains {gain['value']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}],"
        f" score with it {critic['score with it']:.2f}"
    )
