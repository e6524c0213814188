"""`houston doctor`: checks this machine; fetches the model and installs vLLM when asked.

Each check is a function that yields findings (`ok`, `warn`, `fail`) with what was found and what to
do next; `ALL_CHECKS` is their order. The checks here cover the interpreter, SQLite, the home's
disk, clock, descriptors, sockets, secrets, roles, programs, the sandbox, the model and GPUs;
`service.configuration_checks` covers what the configuration names. To add a check, write a
generator and name it in `ALL_CHECKS`. They change nothing.
"""

import argparse
import asyncio
import ctypes
import os
import platform
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from houston_daemon.engines.hub_downloads import refetch_model
from houston_daemon.engines.local_model import (
    INSTALL_LOCAL_HINT,
    MODEL_NAME,
    fetch_model,
    missing_packages,
    model_path,
)
from houston_daemon.engines.vllm_install import has_nvidia_gpu, install_vllm, vllm_path
from houston_daemon.hosts.guard.control_groups import find_cgroup_folders
from houston_daemon.hosts.sandbox import seccomp_filter
from houston_daemon.hosts.sandbox.sandbox_profile import SandboxProfile
from houston_daemon.hosts.sandbox.sandboxed_process import probe_sandbox
from houston_daemon.hosts.system_packages import advise_install
from houston_daemon.importers.container_image import find_container_engine
from houston_daemon.service import configuration_checks
from houston_daemon.service.check_findings import CheckFinding, ok_finding, print_finding
from houston_daemon.service.home_setup import (
    NETWORK_FILESYSTEMS,
    check_roles,
    filesystem_type,
    kept_out_warning,
    mount_options,
)
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.secret_redaction import (
    MIN_SECRET_CHARACTERS,
    install_secrets,
    process_redactor,
    secret_rules,
    too_short_secret_names,
)
from houston_shared.store.presence_queries import login_name

DoctorCheck = Callable[[LoadedConfiguration], Iterator[CheckFinding]]

FREE_MB = 2_000
"""Less free space than this is a warning: a long rollout with terminals fills it."""
FREE_INODES = 100_000
"""Fewer are a warning: workspaces and their snapshots are many small files."""
EARLIEST_CLOCK = 1_735_689_600
"""2025-01-01: a clock before this was never set."""
EXPECTED_CONSOLES = 100
FDS_OF_A_CONSOLE, FDS_OF_A_ROLLOUT, FDS_OF_THE_DAEMON = 4, 6, 200
"""Descriptors that the daemon holds at most for each, and for all the rest."""
_TIME_ERROR = 5
"""adjtimex(2): the clock is not synchronised."""
_TIMEX_BYTES = 256


def check_home(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The home: on a disk of this machine, writable, with room for bytes and files."""
    path = loaded.home.path
    existing = next(place for place in (path, *path.parents) if place.exists())
    filesystem = filesystem_type(path)
    if (owner := _foreign_owner(existing)) and existing == path:
        yield _check_as_group_member(path, owner)
    elif filesystem in NETWORK_FILESYSTEMS:
        step = "Name a --home on a local disk."
        yield CheckFinding("home", "fail", f"{path} on {filesystem}", step)
    elif not _is_writable(existing):
        yield CheckFinding("home", "fail", f"{path} cannot be written", "Name another --home.")
    elif filesystem.startswith("fuse"):
        step = "Make sure that it is not a network file system: file locks must work on it."
        yield CheckFinding("home", "warn", f"{path} on {filesystem}", step)
    else:
        yield ok_finding("home", f"{path} on {filesystem}")
    yield _check_free_space(existing)


def _foreign_owner(folder: Path) -> str:
    """Whose it is, where that is neither this user nor root."""
    uid = folder.stat().st_uid
    return "" if os.geteuid() in (0, uid) else login_name(uid)


def _check_as_group_member(path: Path, owner: str) -> CheckFinding:
    """For a member of the group: what is checked here is its owner's to mend."""
    if os.access(path, os.R_OK | os.X_OK):
        return ok_finding("home", f"{path} is {owner}'s, and this user may read it")
    step = f"Ask {owner} to set `daemon.group` to a group of yours."
    return CheckFinding("home", "fail", f"{path} is {owner}'s, and this user may not read it", step)


def _check_free_space(folder: Path) -> CheckFinding:
    free, files = shutil.disk_usage(folder).free // 1_000_000, os.statvfs(folder)
    words = f"{free:,} MB free"
    if files.f_files:  # some file systems (btrfs) do not count them
        words += f", {files.f_favail:,} inodes"
    if free < FREE_MB or (files.f_files and files.f_favail < FREE_INODES):
        return CheckFinding("space", "warn", words, "Make room: rollouts pause when it is full.")
    return ok_finding("space", words)


def check_clock(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The clock: set, and synchronised as far as the kernel knows."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    if time.time() < EARLIEST_CLOCK:
        yield CheckFinding("clock", "fail", now, "Set the clock of this machine.")
    elif _is_clock_synchronised():
        yield ok_finding("clock", f"{now}, synchronised")
    else:
        step = "Run an NTP client (systemd-timesyncd, chrony); events keep their order without one."
        yield CheckFinding("clock", "warn", f"{now}, not known to be synchronised", step)


def _is_clock_synchronised() -> bool:
    """What adjtimex(2) says; it is asked and changes nothing (modes is 0)."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    state = int(ctypes.CDLL(None, use_errno=True).adjtimex(timex))
    return state not in (-1, _TIME_ERROR)


def check_descriptor_limit(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """Open files: enough for every rollout and a hundred consoles (the soft limit is raised)."""
    rollouts = loaded.config.daemon.max_rollouts
    needed = FDS_OF_THE_DAEMON + FDS_OF_A_ROLLOUT * rollouts + FDS_OF_A_CONSOLE * EXPECTED_CONSOLES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    if hard != resource.RLIM_INFINITY and hard < needed:
        step = f"Raise it to {needed:,} at least: ulimit -Hn, or LimitNOFILE= in its unit."
        yield CheckFinding("files", "warn", f"at most {limit} open files", step)
    else:
        yield ok_finding("files", f"at most {limit} open files; {needed:,} for {rollouts} rollouts")


def check_socket_folder(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """Where the sockets are: an ipc path ends at 107 bytes."""
    run = loaded.home.run
    if run.parent == loaded.home.path:
        yield ok_finding("sockets", str(run))
    elif next(loaded.home.run_places(), None) is None and loaded.home.noted_run is None:
        step = "Set XDG_RUNTIME_DIR to a short folder of yours, or name a shorter --home."
        yield CheckFinding("sockets", "fail", "no folder with a short enough path", step)
    else:
        yield ok_finding("sockets", f"{run} (the home's path is too long for them)")


def check_redaction(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """Secrets of this shell's environment, and those that are too short to be taken out of text."""
    install_secrets(loaded.config)
    words = f"{len(process_redactor().names)} variables of this environment are redacted"
    if too_short := too_short_secret_names(os.environ, secret_rules(loaded.config)):
        step = (
            f"Use values of at least {MIN_SECRET_CHARACTERS} characters, or name them in"
            " `secrets.ignore`."
        )
        yield CheckFinding(
            "secrets", "warn", f"{words}; too short for it: {', '.join(too_short)}", step
        )
    else:
        yield ok_finding("secrets", words)


def check_temporary_folder(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The folder for temporary files: writable, and programs may run in it."""
    folder = Path(tempfile.gettempdir())
    if not _is_writable(folder):
        yield CheckFinding("tmp", "fail", f"{folder} cannot be written", "Set TMPDIR to another.")
    elif "noexec" in mount_options(folder):
        step = "Set TMPDIR to a folder where builds (pip, triton) may run what they made."
        yield CheckFinding("tmp", "warn", f"{folder} is mounted noexec", step)
    else:
        yield ok_finding("tmp", str(folder))


def _is_writable(folder: Path) -> bool:
    """Whether a file can be made in `folder` (asking is not enough on read-only mounts)."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


RUNNING_SYSTEMD = Path("/run/systemd/system")
"""There where systemd runs this machine (sd_booted(3))."""
OLDEST_PYTHON = (3, 11)
FIXED_SQLITE = (3, 51, 3)
"""The first SQLite without the WAL reset bug."""


def check_python(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The interpreter; 3.11 at least, and Linux."""
    python = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        yield CheckFinding("python", "fail", python, "Use Python 3.11 or newer.")
    elif sys.platform != "linux":
        yield CheckFinding(
            "python", "fail", f"{python} on {sys.platform}", "Run the daemon on Linux."
        )
    else:
        yield ok_finding("python", python)


def check_sqlite(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """SQLite: WAL's reset bug (3.7.0 to 3.51.2) needs two connections that write or checkpoint.

    Houston has one that does either, and the home's lock keeps a second daemon out.
    """
    version = sqlite3.sqlite_version
    safe = sqlite3.sqlite_version_info >= FIXED_SQLITE
    note = "" if safe else "; its WAL reset bug needs two writers, Houston has one"
    options = {row[0] for row in sqlite3.connect(":memory:").execute("PRAGMA compile_options")}
    if "ENABLE_FTS5" not in options:
        yield CheckFinding("sqlite", "fail", f"{version} without FTS5", "Use a Python with FTS5.")
    elif sqlite3.threadsafety == 0:
        yield CheckFinding("sqlite", "fail", f"{version} without threads", "Use another Python.")
    else:
        yield ok_finding("sqlite", version + note)


def check_programs(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """tmux and git; Java for ScienceWorld only."""
    for name, required, reason in (
        ("tmux", True, "terminals"),
        ("git", True, "tasks with repositories"),
        ("java", False, "the scienceworld environment"),
    ):
        if path := shutil.which(name):
            yield ok_finding(name, _program_version(name) or path)
        else:
            package = "default-jre-headless" if name == "java" else name
            state: Literal["fail", "warn"] = "fail" if required else "warn"
            yield CheckFinding(name, state, f"not here ({reason})", advise_install(package))


def check_sandbox(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """bubblewrap, by a real spawn."""
    place = Path("/tmp")
    trial = SandboxProfile(kind="bubblewrap", workspace=place, home=place, temporary=place)
    problem = asyncio.run(probe_sandbox(trial))
    if problem:
        yield CheckFinding("sandbox", "fail", problem.cause, problem.next)
    else:
        lacks = "; no filter of system calls for this architecture"
        without = "" if seccomp_filter.filter_for_this_machine() else lacks
        yield ok_finding("sandbox", f"bubblewrap started a process{without}")


def check_image_engine(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """What makes images for tasks; none is needed to run them."""
    if program := find_container_engine():
        name = Path(program).name
        label = _program_version(name) or name
        yield ok_finding("images", f"{label} makes them for tasks; sessions run in bubblewrap")
    else:
        problem = "neither podman nor docker works here (to make a task's image, not to run it)"
        yield CheckFinding("images", "warn", problem, advise_install("podman"))


def check_role_users(loaded: LoadedConfiguration) -> Iterator[CheckFinding]:
    """Whether who is named in `[roles]` exists, and is let in."""
    try:
        check_roles(loaded)
    except HoustonError as problem:
        yield CheckFinding("roles", "fail", problem.cause, problem.next)
        return
    if warning := kept_out_warning(loaded):
        yield CheckFinding("roles", "warn", warning)
    else:
        yield ok_finding("roles", f"group: {loaded.config.daemon.group or 'none, the owner alone'}")


def check_process_limits(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """What holds rollouts to their limits of processes and memory."""
    mechanism = find_cgroup_folders().mechanism
    if mechanism == "watchdog":
        problem = "by a watchdog, once a second: no control groups may be made here"
        step = (
            "houston daemon install-service: systemd gives its unit control groups (Delegate=yes)."
            if RUNNING_SYSTEMD.is_dir()
            else "Nothing needs to be done; with delegated control groups, limits are exact."
        )
        yield CheckFinding("limits", "warn", problem, step)
    else:
        yield ok_finding("limits", f"by the kernel ({mechanism})")


def check_models(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The small model, and what runs it."""
    if path := model_path():
        yield ok_finding("model", str(path))
    else:
        yield CheckFinding("model", "warn", "not fetched", "houston doctor --fetch-model")
    if lacking := missing_packages():
        problem = f"the embedded engine cannot run without {', '.join(lacking)}"
        yield CheckFinding("local", "warn", problem, INSTALL_LOCAL_HINT)
    else:
        yield ok_finding("local", "torch and transformers are installed")
    if engine := vllm_path():
        yield ok_finding("vllm", str(engine))
    else:
        yield CheckFinding("vllm", "warn", "not installed", "houston doctor --install-engine")


def check_gpu(_: LoadedConfiguration) -> Iterator[CheckFinding]:
    """The GPU, where there is one; none is needed."""
    if not has_nvidia_gpu():
        yield ok_finding("gpu", "none: models run on the CPU")
        return
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    if answer := _command_output(query):
        yield ok_finding("gpu", answer.replace("\n", "; "))
    else:
        yield CheckFinding("gpu", "warn", "nvidia-smi gave no answer", "Look at the driver.")


ALL_CHECKS: tuple[DoctorCheck, ...] = (
    check_python,
    check_sqlite,
    check_home,
    check_temporary_folder,
    check_socket_folder,
    check_descriptor_limit,
    check_clock,
    check_redaction,
    check_role_users,
    check_programs,
    check_sandbox,
    check_image_engine,
    check_process_limits,
    check_models,
    configuration_checks.check_hub_models,
    configuration_checks.check_engines_at_urls,
    configuration_checks.check_waiting_workers,
    configuration_checks.check_search_provider,
    check_gpu,
    configuration_checks.check_hosts,
    configuration_checks.check_process_reward,
    configuration_checks.check_artifact_store,
)


def _program_version(program: str) -> str:
    flag = {"tmux": "-V", "java": "-version"}.get(program, "--version")
    return (_command_output([program, flag]).splitlines() or [""])[0]


def _command_output(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (result.stdout or result.stderr).strip() if result.returncode == 0 else ""


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """`--fetch-model`, `--install-engine`, `--json`."""
    parser.add_argument(
        "--fetch-model",
        nargs="?",
        const=MODEL_NAME,
        default="",
        metavar="ID",
        help="fetch SmolLM2-135M (98 MB); or a model of the hub, org/name@revision, resolved anew",
    )
    parser.add_argument("--install-engine", action="store_true", help="install vLLM (3.4 GB)")
    parser.add_argument("--json", action="store_true", help="one JSON line per check")


def run_doctor(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Fetch what was asked for, then check; exit code 1 when something required fails."""
    if arguments.fetch_model == MODEL_NAME:
        fetch_model(command_output.print_note)
    elif arguments.fetch_model:
        snapshot = refetch_model(arguments.fetch_model, loaded.home, command_output.print_note)
        command_output.print_note(f"{snapshot.id} is in {snapshot.folder}")
    if arguments.install_engine:
        install_vllm(command_output.print_note)
    failed = False
    for check in ALL_CHECKS:
        for finding in check(loaded):
            failed |= finding.state == "fail"
            print_finding(finding, arguments.json)
    return int(ExitCode.FAILED if failed else ExitCode.DONE)
