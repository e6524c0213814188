"""This machine as the host of a rollout: what its task maps into the sandbox, such as Python."""

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.resource_limits import compute_resource_limits
from houston_daemon.hosts.rollout_workspace import BranchSnapshot
from houston_shared.gpu_leases import visible_gpus_environment
from houston_shared.records import RolloutSpec
from houston_shared.secret_redaction import restore_secrets
from houston_shared.task import Task


def local_host(
    spec: RolloutSpec,
    task: Task,
    owner: str = "",
    past: BranchSnapshot | None = None,
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
        environment=task_variables(task, gpus),
        limits=compute_resource_limits(mapped, spec.host_memory_mb),
        owner=owner,
        past=past,
        data={name: folder / path for name, path in task.data.mounts.items()},
        activate=folder / task.activate if task.activate else None,
        apart=(folder,),
        image=folder / mapped.image if mapped.image else None,
        workdir=mapped.workdir,
    )


def task_variables(task: Task, gpus: Sequence[int] = ()) -> dict[str, str]:
    """The environment variables of a task, as its programs get them: a key has its value, and
    leased GPUs are the only ones that CUDA shows.
    """
    own = {key: restore_secrets(value) for key, value in task.environment_variables.items()}
    return {**own, **visible_gpus_environment(gpus)} if gpus else own


# Not the virtual environment's own python: it is a link that may lead through others.
PYTHON = os.path.realpath(sys.executable)
PACKAGES = tuple(dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib"))))
"""Folders of installed packages."""
_SYSTEM = ("/usr", "/bin", "/lib", "/opt")


def interpreter_paths(*places: str | Path) -> Sequence[Path]:
    """The interpreter and `places`, as far as not every sandbox shows them anyway."""
    return unmapped_paths(Path(PYTHON).parent.parent, sys.base_prefix, *places)


def unmapped_paths(*places: str | Path) -> Sequence[Path]:
    """Those of `places` that not every sandbox shows anyway."""
    named = dict.fromkeys(map(Path, places))
    return [path for path in named if not any(map(path.is_relative_to, _SYSTEM))]


def missing_packages(names: Iterable[str]) -> list[str]:
    """Those of the named packages that are not installed; nothing is imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def package_paths(names: Iterable[str]) -> list[Path]:
    """Where packages lie, with the libraries that wheels keep beside them."""
    paths: list[Path] = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        folder = spec.submodule_search_locations
        place = Path(folder[0]) if folder else Path(spec.origin)
        libs_folder = place.with_name(f"{name}.libs")
        paths += [place, *([libs_folder] if libs_folder.is_dir() else [])]
    return paths
