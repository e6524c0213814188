"""This machine as the host of a rollout, as its task maps it."""

from collections.abc import Sequence
from pathlib import Path

from houston_daemon.hosts.branching import Past
from houston_daemon.hosts.limits import limits
from houston_daemon.hosts.local import LocalHost
from houston_shared.gpu_file import visible
from houston_shared.records import RolloutSpec
from houston_shared.secret_values import restored
from houston_shared.task import Task


def local_host(
    spec: RolloutSpec,
    task: Task,
    owner: str = "",
    past: Past | None = None,
    gpus: Sequence[int] = (),
) -> LocalHost:
    """A host that is shut in as the task says; nothing is touched before its `prepare`.

    owner: the home whose rollout it is; no other may drive it meanwhile.
    past: where the workspace of a branch comes from. gpus: those that the rollout has leased.
    """
    mapped, folder = task.mapped, Path(spec.task.folder)
    return LocalHost(
        Path(spec.host_root),
        spec.rollout,
        sandbox=mapped.kind,
        network=mapped.network,
        hidden=tuple(map(Path, spec.hidden)),
        read=tuple(map(Path, mapped.read)),
        devices=tuple(map(Path, mapped.devices)),
        gpus=mapped.gpus or bool(gpus),
        environment=variables(task, gpus),
        limits=limits(mapped, spec.host_memory_mb),
        owner=owner,
        past=past,
        data={name: folder / path for name, path in task.data.mounts.items()},
        activate=folder / task.activate if task.activate else None,
        apart=(folder,),
    )


def variables(task: Task, gpus: Sequence[int] = ()) -> dict[str, str]:
    """The environment variables of a task, as its programs get them: a key has its value, and
    leased GPUs are the only ones that CUDA shows.
    """
    own = {key: restored(value) for key, value in task.environment_variables.items()}
    return {**own, **visible(gpus)} if gpus else own
