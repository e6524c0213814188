"""What guidance and masks are worth: APOLLO's ablation (table 2) with power.

    python bench/guidance.py [--suite word-worlds|small-workstation] [--seeds 3] [--rollouts N]
                             [--worlds 256] [--split test] [--folder DIR] [--model DIR]
                             [--set KEY=VALUE]

One daemon, real rollouts of a suite. A scripted sampler does something wrong that no error shows in
60 % (it opens a wrong box, or writes a wrong text) and errs in a quarter of its steps; a scripted
person speaks over the wire after that, is heard as `<real_user>`, obeyed, and masks that step
(`bench.guided_samplers.guided_sampling`). By seed it is sampled with and without the person,
exported, trained (`houston train sft`) from one warmed-up policy (`houston policy tiny`, or `warm`
for a language model), and measured alone on held-out worlds. Settings were fixed before anything
was measured; `--split validation` is there for changing them. The same command goes on where it was
broken off in `--folder`. Where the split is `test`, written to bench/results/guidance.json, of
another suite guidance_SUITE.json.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.guided_samplers.guided_files import GUIDED_FILES
from bench.guided_samplers.guided_sampling import (
    ARMS,
    SPLIT,
    GuidedSuite,
    export_words,
    mask_condemned,
    sampling_agent,
)
from bench.guided_samplers.guided_words import GUIDED_WORDS
from bench.learning import (
    BASE,
    ENGINE,
    PATIENCE,
    WORDS,
    cells,
    compared,
    interval,
    keep_result,
    learning_home,
    suite_arguments,
    told,
)

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_statistics import score_differences
from houston_daemon.experiments.scripted_endpoint import ScriptedEndpoint, endpoint_engine
from houston_daemon.suites.imperfect_agents import AgentHabits
from houston_daemon.suites.suite_catalog import SUITES
from houston_daemon.suites.suite_results import SuiteRun, read_run, sign_flip_p

GUIDED, ALONE, BASE_POLICY = "guided", "alone", "base"
HABITS = AgentHabits(wrong=0.6, errors=0.25)
SUITES_GUIDED = {suite.name: suite for suite in (GUIDED_WORDS, GUIDED_FILES)}
ROLLOUTS = {"word-worlds": 500, "small-workstation": 240}
"""With and without a person, by seed."""
TRAINING: Mapping[str, tuple[str, ...]] = {
    "word-worlds": (
        *("epochs=12", "batch=32", "learning_rate=1e-3", "final_learning_rate=1e-4"),
        *("warmup=0.05", "max_length=512", "precision=fp32"),
    ),
    "small-workstation": (
        *("epochs=2", "batch=4", "learning_rate=1e-3", "final_learning_rate=1e-4"),
        "pack_tokens=1024",
    ),
}
"""Of all weights of a tiny policy; of an adapter of a language model, as in its warm-up."""
Runs = Mapping[str, Mapping[int, SuiteRun]]


def free_ports(folder: Path) -> dict[str, int]:
    """A port for each sampler; the same when a run goes on."""
    file = folder / "ports.json"
    if not file.is_file():
        with socket.socket() as one, socket.socket() as other:
            for free in (one, other):
                free.bind(("127.0.0.1", 0))
            ports = {GUIDED: one.getsockname()[1], ALONE: other.getsockname()[1]}
        file.write_text(json.dumps(ports))
    return dict(json.loads(file.read_text()))


@contextmanager
def samplers(
    home: ExperimentHome, suite: GuidedSuite[Any], ports: Mapping[str, int]
) -> Iterator[None]:
    """Serve both samplers meanwhile."""
    with ExitStack() as serving:
        for name, port in ports.items():
            agent = sampling_agent(home, suite, name == GUIDED, HABITS)
            serving.enter_context(ScriptedEndpoint(agent, port))
        yield


def suite_run(home: ExperimentHome, suite: str, name: str, engine: str, *words: str) -> SuiteRun:
    """`houston suite run`; what was run before is read."""
    file = home.home.path / "suites" / suite / f"{name}.json"
    if not file.is_file():
        words = ("suite", "run", suite, "--engine", engine, "--name", name, *words)
        home.run(*words, seconds=PATIENCE)
    return read_run(file)


def sampled(home: ExperimentHome, kind: str, seed: int, asked: argparse.Namespace) -> SuiteRun:
    """Rollouts to learn from, one in each of the first worlds of `train`; the guided ones masked as
    the person says."""
    words = ("--split", SPLIT, "-n", str(asked.rollouts), "--seed", str(seed))
    run = suite_run(home, asked.suite, f"{kind}-{seed}", kind, *words)
    done = home.folder / f"masked-{seed}"
    if kind == GUIDED and not done.is_file():
        done.write_text(f"{mask_condemned(home, SUITES_GUIDED[asked.suite], run)}")
    return run


def exported(
    home: ExperimentHome, arm: str, seed: int, run: SuiteRun, asked: argparse.Namespace
) -> Path:
    """The rows of an arm, in the order of their worlds."""
    out = home.folder / "rows" / f"{arm}-{seed}"
    if not (out / "manifest.json").is_file():
        rollouts = [world.attempts[0].rollout for world in run.worlds]
        tokenizer = asked.model / "tokenizer.json"
        home.run(*export_words(arm, asked.suite, rollouts, tokenizer, out))
    return out


def trained(
    home: ExperimentHome, arm: str, seed: int, rows: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """Train one policy; how it went. What was trained before is read."""
    kept = home.folder / f"{arm}-{seed}.json"
    if not kept.is_file():
        settings = (f"seed={seed}", *TRAINING[asked.suite], *asked.set)
        whole = ("--full",) if SUITES[asked.suite].dialect == WORDS else ()
        began = time.monotonic()
        words = ("train", "sft", "--data", str(rows), "--base", str(asked.model), *whole)
        words += ("--name", f"{arm}-{seed}", "--json")
        words += tuple(word for setting in settings for word in ("--set", setting))
        run = json.loads(home.run(*words, seconds=PATIENCE).splitlines()[-1])
        kept.write_text(json.dumps({**run, "seconds": round(time.monotonic() - began, 1)}))
    return dict(json.loads(kept.read_text()))


def measured(
    home: ExperimentHome, arm: str, policy: str, seed: int, asked: argparse.Namespace
) -> SuiteRun:
    """The policy alone in held-out worlds."""
    name = f"{asked.split}-{arm}-{seed}".replace(" ", "-")
    if not (home.home.path / "suites" / asked.suite / f"{name}.json").is_file():
        home.run("policy", "activate", policy, "--engine", ENGINE)
    words = ("--split", asked.split, "-n", str(asked.worlds), "--seed", str(seed))
    return suite_run(home, asked.suite, name, ENGINE, "--policy", policy, *words)


def with_flips(runs: Runs, one: str, other: str) -> dict[str, Any]:
    """How much better `one` is than `other`, and the worlds that flipped, over all seeds."""
    solved = score_differences(cells(runs[one], "solved"), cells(runs[other], "solved"))
    flips = [value for by_seed in solved.values() for value in by_seed.values()]
    gained, lost = flips.count(1.0), flips.count(-1.0)
    counts = {"gained": gained, "lost": lost, "p": sign_flip_p([Fraction(flip) for flip in flips])}
    return {**compared(runs, one, other), "flips": counts}


def solved_by_seed(seeds: Mapping[int, SuiteRun]) -> dict[int, float]:
    """By seed the share of worlds that is solved."""
    return {seed: interval(cells({seed: run}, "solved"))["value"] for seed, run in seeds.items()}


def ablate(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """All arms and seeds, and what came out: each arm, and `full` against the others."""
    runs: dict[str, dict[int, SuiteRun]] = {BASE: {}}
    training: dict[str, dict[str, Any]] = {}
    sampling: dict[str, Any] = {}
    for seed in range(1, asked.seeds + 1):
        runs[BASE][seed] = measured(home, BASE, BASE_POLICY, seed, asked)
        data = {kind: sampled(home, kind, seed, asked) for kind in (GUIDED, ALONE)}
        for kind, run in data.items():
            solved = solved_by_seed({seed: run})[seed]
            sampling[f"{kind}, seed {seed}"] = {"solved": solved, "seconds": run.seconds}
        for arm, what in ARMS.items():
            rows = exported(home, arm, seed, data[GUIDED if what.guided else ALONE], asked)
            went = trained(home, arm, seed, rows, asked)
            runs.setdefault(arm, {})[seed] = measured(home, arm, went["policy"], seed, asked)
            counts = json.loads((rows / "manifest.json").read_text())["counts"]
            training.setdefault(arm, {})[str(seed)] = {"seconds": went["seconds"], "rows": counts}
            print(f"{arm}, seed {seed}: {solved_by_seed(runs[arm])[seed]:.3f} solved", flush=True)
    held_out = {
        arm: {**told(seeds), "solved by seed": solved_by_seed(seeds)} for arm, seeds in runs.items()
    }
    full = {arm: with_flips(runs, "full", arm) for arm in runs if arm != "full"}
    return {"held out": held_out, "full minus": full, "sampling": sampling, "training": training}


def main() -> int:
    """Ablate, print, keep."""
    parser = suite_arguments(__doc__ or "", GUIDED_WORDS.name, list(SUITES_GUIDED))
    parser.add_argument("--rollouts", type=int, help="with and without a person, by seed")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    asked = parser.parse_args()
    asked.rollouts = asked.rollouts or ROLLOUTS[asked.suite]
    with ExitStack() as stack:
        if asked.folder is None:
            asked.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="houston-")))
        asked.folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(asked.folder)
        engines = {name: endpoint_engine(port) for name, port in ports.items()}
        kept = ("suite", "engine", "rollouts", "split", "set")
        home, about = stack.enter_context(learning_home(asked, engines=engines, settings=kept))
        stack.enter_context(samplers(home, SUITES_GUIDED[asked.suite], ports))
        result = {**about, **ablate(home, asked)}
    result |= {**asdict(HABITS), "recipe": TRAINING[asked.suite]}
    if asked.split == "test":
        keep_result("guidance", asked, GUIDED_WORDS.name, result)
    print(json.dumps({key: result[key] for key in ("held out", "full minus")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
