"""Conducts an experiment from its first stage to its report; each stage only once.

sample (with and without the annotator), judge, rows, then train and measure arm by arm and seed by
seed. The scripted sampler serves as long as something is sampled; the model's engine is the
daemon's child.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from houston_daemon.training.experiment import (
    learning,
    masking,
    measuring,
    recipe,
    report,
    sampling,
)
from houston_daemon.training.experiment.endpoint import Endpoint, engine
from houston_daemon.training.experiment.own_home import OwnHome
from houston_daemon.training.experiment.recipe import Arm
from houston_daemon.training.experiment.run import ALONE, GUIDED, MODEL, Run, vocabulary
from houston_daemon.training.experiment.solutions import Solutions
from houston_daemon.training.experiment.stages import Stages


def opened(folder: Path, say: Callable[[str], None], seeds: int | None = None) -> Run:
    """The run that lies in `folder`, its daemon not started. seeds: only the first so many."""
    made = recipe.read(folder / "recipe.toml")
    stages = Stages(folder / "stages", say)
    ports = stages.kept("ports", _free_ports)
    engines = {name: engine(port) for name, port in ports.items()}
    engines[MODEL] = {"kind": "vllm", **made.model.engine}
    ground = OwnHome(folder / "ground", engines, made.at_once, made.gpus)
    if seeds is not None:
        made = recipe.with_seeds(made, seeds)
    return Run(folder, made, ground, stages, vocabulary(folder), say)


def conduct(run: Run, only: Sequence[Arm] = ()) -> str:
    """Do what is not done yet, and write the report; its path. Raises HoustonError.

    only: leave the other arms for another time.
    """
    arms = [arm for arm in run.recipe.arms if not only or arm in only]
    run.ground.start()
    try:
        sample(run, arms)
        for seed in run.recipe.seeds:
            for arm in arms:
                _arm(run, arm, seed)
    finally:
        run.ground.stop()
    return report.write(run)


def sample(run: Run, arms: Sequence[Arm]) -> None:
    """Sample and judge what the arms learn from; the daemon runs."""
    kinds = {learning.SAMPLED[arm]: None for arm in arms if arm in learning.SAMPLED}
    left = [kind for kind in kinds if run.stages.done(f"judge-{kind}") is None]
    solutions = Solutions()
    with ExitStack() as serving:
        agents = {kind: sampling.Agents(run, kind, solutions) for kind in left}
        for kind in left:
            port = run.stages.kept("ports", _free_ports)[kind]
            serving.enter_context(Endpoint(agents[kind], port))
        for kind in left:
            what = partial(sampling.sample, run, kind, agents[kind])
            some = run.stages.run(f"sample-{kind}", what)["rollouts"]
            run.stages.run(f"judge-{kind}", partial(masking.judge, run, some, solutions))


def _arm(run: Run, arm: Arm, seed: int) -> None:
    """Train an arm with a seed, unless it is the base, and measure it."""
    policy = ""
    if arm in learning.SAMPLED:
        data = run.stages.run(f"rows-{arm}", partial(learning.rows, run, arm))
        what = partial(learning.train, run, arm, seed, data["folder"])
        policy = run.stages.run(f"train-{arm}-{seed}", what)["policy"]
    run.stages.run(f"measure-{arm}-{seed}", partial(measuring.measure, run, policy, seed))


def _free_ports() -> dict[str, int]:
    """A port for each scripted sampler, which a run that goes on uses again."""
    with ExitStack() as held:
        sockets = {kind: held.enter_context(socket.socket()) for kind in (GUIDED, ALONE)}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {kind: int(one.getsockname()[1]) for kind, one in sockets.items()}
