"""Reinforcement learning end to end: Houston's runs beside TRL's GRPOTrainer, in one run.

    python bench/rl.py [--updates 6] [--rounds 2] [--device cpu|cuda] [--precision fp32|auto]
                       [--model DIR | --parameters N] [--set KEY=VALUE]…

Both train a tiny policy by DAPO in the same worlds of the suite `word-worlds`: groups of as many
episodes, answers of as many tokens at temperature 1, as many updates, the same LoRA adapter, clip
range, rate and minibatches (recipe `small`, without refills, which TRL has not). Houston:
`houston train dapo` against a daemon with its engine `embedded`, both running already. TRL:
`GRPOTrainer` with `environment_factory` on the same world, dialect and tokenizer, generating with
transformers in its process (`against_trl.words_for_trl` says what differs). The sides take turns,
the other one first in each round, and each is a process of its own.

`whole` counts from the command to its end, `loop` from the first episode to the last optimizer
step. A busy machine makes wall time uncertain; `processor seconds` are of all processes of a side.
Houston also keeps every step durably, writes a checkpoint and registers a version each update,
which TRL is not asked to. A model of 1.8 million parameters takes little beside that; --parameters
makes a larger one. --precision is the trainers', and TRL's when it samples; Houston's engine
samples a wide model in bf16 wherever the processor multiplies it, whichever is asked. Written to
bench/results/rl.json, for each device, number of parameters and precision.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / room) for room in ("daemon", "shared"))]
from bench.against_trl.process_watch import VARIABLE, ProcessWatch
from bench.durable.machine import device_name, machine

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.training.rl.rl_recipe import RlRecipe, load_rl_recipe
from houston_shared.errors import HoustonError
from houston_shared.store.journal_events import RunSql

RESULTS = ROOT / "bench" / "results" / "rl.json"
SUITE, ENGINE = "word-worlds", "tiny"
SIDES = ("houston", "trl")
AIM = 1.5
"""Times as fast end to end."""
PARAMETERS = 1_800_000
THREADS = "2"
PARTS = {
    "engine": "engines.embedded",
    "trainer": "training.rl",
    "daemon": "service.daemon_process",
    "workers": "agent.shared_worker",
    "trl": "rl.py",
}
"""Part → a word of its processes' command lines."""
_QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}


def settings_of(asked: argparse.Namespace) -> list[str]:
    """What is set over the recipe `small`, on both sides."""
    device, precision = f"device={asked.device}", f"precision={asked.precision}"
    return [f"updates={asked.updates}", "refill=0", device, precision, *asked.settings]


# --- the two sides -------------------------------------------------------------------------------


def run_houston(
    home: ExperimentHome, settings: Sequence[str], number: int, device: str
) -> dict[str, Any]:
    """Train once with the daemon that runs; figures."""
    words = [word for setting in settings for word in ("--set", setting)]
    words += ["--gpus", "1", "--share-gpus"] if device == "cuda" else []
    with ProcessWatch("houston", PARTS) as watch:
        began = time.monotonic()
        told = home.run(
            *("train", "dapo", "--suite", SUITE, "--engine", ENGINE, "--recipe", "small"),
            *("--name", f"round{number}", "--json", *words),
            seconds=3600,
        )
        whole = time.monotonic() - began
    run = json.loads(told.splitlines()[-1])
    folder = Path(run["folder"])
    groups = [json.loads(file.read_bytes()) for file in (folder / "groups").glob("*.json")]
    first = min(file.stat().st_mtime for file in (folder / "groups").glob("*.json"))
    spent: dict[str, float] = {}
    for update in run["updates"]:
        for stage, seconds in update["seconds"].items():
            spent[stage] = round(spent.get(stage, 0.0) + seconds, 2)
    trained = sum(update["trained_tokens"] for update in run["updates"])
    return {
        "whole_seconds": round(whole, 2),
        "loop_seconds": round((folder / "updates.jsonl").stat().st_mtime - first, 2),
        "seconds": spent,
        "episodes": sum(len(group["rollouts"]) for group in groups),
        **_sampled(home, {rollout for group in groups for rollout in group["rollouts"]}),
        "tokens_trained": trained,
        "of_them_with_an_advantage": trained,
        "solved": [round(update["sampling"]["solved"], 4) for update in run["updates"]],
        "zero_variance": [
            update["sampling"]["zero_variance"] / update["sampling"]["groups"]
            for update in run["updates"]
        ],
        "largest_gap": max(update["gap_largest"] for update in run["updates"]),
        **_taken(watch),
    }


def _sampled(home: ExperimentHome, rollouts: set[str]) -> dict[str, Any]:
    """Tokens of the policy's samples, and how much of their prompts the engine had."""
    rows = home.read(_samples())
    own = [row[1:] for row in rows if row[0] in rollouts]
    sampled, prompts, cached = (sum(column) for column in zip(*own, strict=True))
    return {
        "answers": len(own),
        "tokens_sampled": sampled,
        "of_them_in_closing_answers": 0,
        "prefix_hits": round(cached / prompts, 4),
    }


def _samples() -> Any:
    return (
        yield RunSql(
            "SELECT rollout, sampled_ids, prompt_tokens, coalesce(cached_tokens, 0) FROM samples"
            " WHERE role = 'policy'",
            (),
        )
    )


def run_trl(model: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Train once in a process of its own; figures."""
    words = [sys.executable, __file__, "--trl-only", "--model", str(model)]
    words += ["--updates", str(asked.updates), "--device", asked.device]
    words += ["--precision", asked.precision]
    words += [word for setting in asked.settings for word in ("--set", setting)]
    with ProcessWatch("trl", PARTS) as watch:
        began = time.monotonic()
        environment = {**os.environ, **_QUIET, VARIABLE: "trl"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        whole = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"TRL's side ended with {done.returncode}: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    counting = figures.pop("counting_seconds")
    return {"whole_seconds": round(whole - counting, 2), **figures, **_taken(watch)}


def _taken(watch: ProcessWatch) -> dict[str, Any]:
    return {
        "cpu_seconds": round(sum(watch.cpu_seconds.values()), 1),
        "cpu_seconds_of": {part: round(spent, 1) for part, spent in watch.cpu_seconds.items()},
        "peak_mb": round(watch.peak_mb),
        "peak_mb_of": {part: round(size) for part, size in watch.part_peaks_mb.items()},
        "load": round(os.getloadavg()[0], 1),
    }


# --- figures -------------------------------------------------------------------------------------


def rates(reading: Mapping[str, Any]) -> dict[str, float]:
    """Episodes and tokens a second of one reading."""
    whole, loop, cpu = (reading[f"{name}_seconds"] for name in ("whole", "loop", "cpu"))
    episodes, trained = reading["episodes"], reading["tokens_trained"]
    return {
        "episodes_per_second_whole": episodes / whole,
        "episodes_per_second_loop": episodes / loop,
        "episodes_per_processor_second": episodes / cpu,
        "trained_tokens_per_second_whole": trained / whole,
        "trained_tokens_per_second_loop": trained / loop,
        "trained_tokens_with_an_advantage_per_second_loop": (
            reading["of_them_with_an_advantage"] / loop
        ),
        "sampled_tokens_per_second_of_sampling": (
            reading["tokens_sampled"] / reading["seconds"]["sampling"]
        ),
        **{
            f"{stage}_seconds_per_1000_episodes": 1000 * seconds / episodes
            for stage, seconds in reading["seconds"].items()
        },
    }


def compared(readings: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Medians of both sides, and Houston's over TRL's."""
    medians: dict[str, dict[str, float]] = {}
    for side, each in readings.items():
        told = [rates(reading) for reading in each]
        medians[side] = {
            name: round(statistics.median(one[name] for one in told), 3) for name in told[0]
        }
    ratio = {
        name: round(medians["houston"][name] / value, 3)
        for name, value in medians["trl"].items()
        if value
    }
    return {"medians": medians, "houston / trl": ratio}


def measure(home: ExperimentHome, model: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """All rounds, and what came out."""
    readings: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for number in range(asked.rounds):
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            if side == "houston":
                reading = run_houston(home, settings_of(asked), number, asked.device)
            else:
                reading = run_trl(model, asked)
            readings[side].append(reading)
            print(f"{side}: {json.dumps(reading)}", flush=True)
    return {**compared(readings), "readings": readings}


def made_model(place: Path, parameters: int) -> Path:
    """A policy with a short warm-up, about a minute for the default number of parameters; it solves
    some worlds and not others."""
    from houston_daemon.suites.tiny_policy import TinyRecipe, make_tiny_policy

    recipe = TinyRecipe(parameters, worlds=64)
    if parameters != PARAMETERS:  # many learn in fewer passes, which take long
        recipe = replace(recipe, settled=2, rate=1e-3)
    try:
        make_tiny_policy(place, recipe, lambda line: print(line, flush=True))
    except HoustonError as problem:  # it solves fewer or more than one would begin with
        print(problem, flush=True)
    return place


def trl_only(asked: argparse.Namespace, recipe: RlRecipe) -> int:
    """TRL's side, in this process; its figures on the last line."""
    import torch
    from bench.against_trl.grpo_run import train

    torch.set_num_threads(int(THREADS))
    with tempfile.TemporaryDirectory(prefix="houston-rl-") as folder:
        print(json.dumps(train(asked.model, recipe, Path(folder))))
    return 0


def report(
    asked: argparse.Namespace,
    recipe: RlRecipe,
    folder: Path,
    model: Path,
    result: Mapping[str, Any],
) -> dict[str, Any]:
    """What is kept: where it was measured, what of, and the figures."""
    about = machine(folder)
    about["versions"] |= {name: version(name) for name in ("torch", "transformers", "trl", "peft")}
    speed = result["houston / trl"]["episodes_per_second_whole"]
    return {
        **about,
        "device": device_name(asked.device),
        "threads": int(THREADS),
        "parameters": json.loads((model / "tiny_policy.json").read_text())["parameters"],
        "recipe": ["small", *settings_of(asked)],
        "groups": recipe.groups,
        "group_size": recipe.group_size,
        "aim": AIM,
        "met": speed >= AIM,
        **result,
    }


def both_sides(asked: argparse.Namespace, recipe: RlRecipe) -> dict[str, Any]:
    """Measure in a home of its own."""
    with tempfile.TemporaryDirectory(prefix="houston-rl-") as temporary:
        folder = Path(temporary)
        model = (asked.model or made_model(folder / "model", asked.parameters)).absolute()
        os.environ[VARIABLE] = "houston"
        gpus = int(asked.device == "cuda")
        engine = {"kind": "embedded", "model": str(model), "dialect": "words"}
        engine |= {"gpus": gpus, "gpus_shared": True} if gpus else {}
        at_once = recipe.groups * recipe.group_size
        home = ExperimentHome(folder, {ENGINE: engine}, at_once=at_once, gpus=gpus)
        home.start()
        try:  # engine and workers are there before anything is measured
            home.run("suite", "run", SUITE, "--engine", ENGINE, "--split", "validation", "-n", "16")
            result = measure(home, model, asked)
        finally:
            home.stop()
        return report(asked, recipe, folder, model, result)


def arguments() -> argparse.ArgumentParser:
    """What can be asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "auto"), default="fp32")
    made = parser.add_mutually_exclusive_group()
    made.add_argument("--model", type=Path, help="a policy of `houston policy tiny`")
    made.add_argument("--parameters", type=int, default=PARAMETERS, help="of one made here")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--no-keep", action="store_true")
    parser.add_argument("--trl-only", action="store_true", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Measure, print, keep; whether the aim is met stands in the file."""
    asked = arguments().parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", THREADS)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    recipe = load_rl_recipe("small", settings_of(asked))
    if asked.trl_only:
        return trl_only(asked, recipe)
    told = both_sides(asked, recipe)
    if not asked.no_keep:
        kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        millions = round(told["parameters"] / 1e6)
        name = asked.device if millions <= 2 else f"{asked.device}, {millions} million parameters"
        name += "" if asked.precision == "fp32" else f", precision {asked.precision}"
        RESULTS.write_text(json.dumps({**kept, name: told}, indent=1) + "\n")
    print(json.dumps({name: told[name] for name in ("medians", "houston / trl")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
