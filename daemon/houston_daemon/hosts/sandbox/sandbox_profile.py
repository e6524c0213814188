"""What a sandboxed process may see, as bubblewrap's arguments.

Mapped: the system's programs and libraries read-only, a few files of /etc, the Python that
`python3` resolves to, a virtual or conda environment that the task names, the rollout's workspace,
home and temporary folder. Nothing else is mapped: no keys, not the daemon's home, its sockets or
other rollouts. For a daemon of root, /proc is read-only and no user namespace can be made inside.
If a task has an image, a rollout's own copy of it replaces the system's programs. This module
builds arguments and writes one file of settings; it starts nothing.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

from platformdirs import user_config_path

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.sandbox import process_enclosure
from houston_daemon.hosts.sandbox.process_enclosure import (
    FILTER_DESCRIPTOR,
    SETTINGS_DESCRIPTOR,
    Enclosure,
)
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.task_tables import DATA_FOLDER

SECRET_NAMES = (".ssh", ".gnupg", ".aws", ".netrc", ".config/gcloud", ".kube", ".docker")
"""What the user's home folder keeps secret."""


def secret_paths() -> tuple[Path, ...]:
    """Keys, and the user's configuration of Houston."""
    user = Path.home()
    return (user_config_path("houston"), *(user / key for key in SECRET_NAMES))


def hidden_paths(home: Home) -> tuple[str, ...]:
    """Places that no sandbox may map: the home, its sockets, keys, the user's configuration."""
    places = (home.path, home.run, home.logs, *secret_paths())
    return tuple(dict.fromkeys(map(str, places)))


_VENV_SETTINGS = "pyvenv.cfg"


def is_conda_environment(folder: Path) -> bool:
    """Whether it is a conda environment, also one that was packed and unpacked."""
    return (folder / "conda-meta").is_dir()


def check_python_environment(folder: Path) -> None:
    """Raise HoustonError for a folder that is neither kind of environment."""
    try:
        is_environment = (folder / "bin").is_dir()
        is_environment = is_environment and (
            is_conda_environment(folder) or (folder / _VENV_SETTINGS).is_file()
        )
    except OSError:  # such as a name that is too long
        is_environment = False
    if not is_environment:
        raise HoustonError(
            f"{folder} is neither a virtual environment (pyvenv.cfg) nor a conda one (conda-meta).",
            "No process was started.",
            "Correct `activate` of the task.",
        )


def conda_activation_scripts(folder: Path) -> list[str]:
    """Names of a conda environment's own scripts, which packages leave there and nobody runs."""
    try:
        return sorted(file.name for file in (folder / "etc/conda/activate.d").iterdir())
    except OSError:
        return []


def python_environment_folders(folder: Path) -> list[Path]:
    """What must be mapped for it to work: itself, and the Python that a virtual one was made of."""
    folders = [folder]
    try:
        lines = (folder / _VENV_SETTINGS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return folders
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip():
            folders.append(Path(value.strip()).parent)
    return [*folders, *(path.resolve() for path in folders if path.resolve() != path)]


def activation_variables(folder: Path, path: str) -> dict[str, str]:
    """PATH (what it was is `path`), and the name that programs know the environment by."""
    name = "CONDA_PREFIX" if is_conda_environment(folder) else "VIRTUAL_ENV"
    return {"PATH": f"{folder}/bin:{path}", name: str(folder)}


WORKSPACE_INSIDE = "/workspace"
"""Where the workspace lies for a sandboxed process, on every host and in every rollout."""
HOME_INSIDE = "/home/agent"
IMAGE_HOME = "/root"
"""The home folder in an image, whose programs run as its root."""
TEMPORARY_INSIDE = "/scratch"
COMMANDS_INSIDE = "/run/houston"

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
_ETC_FILES = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies",
    "debian_version", "fonts", "group", "gai.conf", "host.conf", "hosts", "inputrc",
    "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "nsswitch.conf", "OpenCL",
    "os-release", "passwd", "pki", "profile", "protocols", "python3", "R", "rpc", "services",
    "ssl", "terminfo", "timezone", "vulkan",
)  # fmt: skip
_NETWORK_ETC_FILES = ("resolv.conf",)
RESERVED_FOLDERS = (*_SYSTEM_FOLDERS, "/dev", "/etc", "/proc", "/sys", "/run", DATA_FOLDER)
"""Where a workspace cannot be mapped beside what every sandbox maps."""
_MASKED_FILES = (
    "kcore", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "mtrr",
    "sched_debug", "slabinfo", "sysrq-trigger", "timer_list", "vmallocinfo",
)  # fmt: skip
"""What /proc says of the machine and not of the sandbox's processes."""
_GPU_DEVICES = ("nvidia", "dri", "kfd")
_OPEN = Enclosure()
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class SandboxProfile:
    """How one rollout's processes are shut in."""

    kind: Literal["bubblewrap", "none"]
    workspace: Path
    home: Path
    """The rollout's own home folder, kept over its terminals."""
    temporary: Path
    """Its own /tmp."""
    network: bool = False
    hidden: tuple[Path, ...] = ()
    """Never shown, even below something that is."""
    apart: tuple[Path, ...] = ()
    """Shown to nobody but the process that they are named to, as an evaluator's folder is."""
    read: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    gpus: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Path] = field(default_factory=dict)
    """By name: what is shown read-only at `/data/NAME`."""
    activate: Path | None = None
    """Folder of an environment whose programs come first."""
    image: Path | None = None
    """The rollout's copy of an image's files, in the place of this machine's programs."""
    workdir: str = ""
    """Where the workspace lies as well as at `WORKSPACE_INSIDE`; empty for nowhere."""
    shared_bytes: int = 0
    """What its /dev/shm holds at most; 0 leaves it to the kernel: half of the machine's memory."""

    @property
    def inside(self) -> str:
        """The workspace's path as the agent sees it."""
        if self.kind == "none":
            return str(self.workspace)
        return self.workdir or WORKSPACE_INSIDE

    def wrap(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        commands: Path | None = None,
        scratch: Path | None = None,
        changeable: bool = False,
        extra_read: Sequence[Path] = (),
        cwd: str = "",
        dies_with_parent: bool = False,
        enclosure: Enclosure = _OPEN,
        joining: Sequence[str] = (),
    ) -> list[str]:
        """The argument list that runs `command` shut in (or, for "none", with a clean environment).

        commands: a folder shown read-only at /run/houston.
        scratch: shown writable at /scratch; workspace and `extra_read` are read-only then.
        changeable: with `scratch`, the workspace may be changed all the same: it is a copy.
        enclosure: groups, limits and filter; without a sandbox there is no filter.
        joining: the words that put the process into a network that is there (`network.joining`).
        Raises HoustonError when something to be mapped lies in a hidden place or is missing.
        """
        untrusted_files.restore_owner_rights(self.workspace)
        values, variables = self._environment(scratch), {**self.environment, **(environment or {})}
        if self.kind == "none":
            where = cwd or str(scratch or self.workspace)
            pairs = [f"{key}={value}" for key, value in {**values, **variables}.items()]
            plain = ["/usr/bin/env", "-i", "-C", where, *pairs, *command]
            return replace(enclosure, filter=None).around(plain)
        walls = self._namespace_arguments(dies_with_parent, bool(joining))
        before = process_enclosure.landlock_command() if self.network else joining
        arguments = [*before, shutil.which("bwrap") or "bwrap", *walls]
        if enclosure.filter is not None:
            arguments += ["--seccomp", str(FILTER_DESCRIPTOR)]
        arguments += [*self._mounts(commands, scratch, changeable, extra_read), "--clearenv"]
        for key, value in values.items():
            arguments += ["--setenv", key, value]
        if variables:
            arguments += ["--args", str(SETTINGS_DESCRIPTOR)]
            enclosure = replace(enclosure, settings=self._settings(variables))
        where = cwd or (TEMPORARY_INSIDE if scratch else self.inside)
        arguments += ["--chdir", where, "--", *enclosure.inside(command)]
        return enclosure.around(arguments)

    def _mounts(
        self, commands: Path | None, scratch: Path | None, changeable: bool, read: Sequence[Path]
    ) -> list[str]:
        """What the process sees of the machine's files, and what of it is read-only; see `wrap`."""
        # In this order: what is named may lie below /tmp, and what is hidden below what is named.
        arguments = [*self._system(), *self._own_folders(scratch), *self._mount_arguments()]
        covers = self._covers(read)
        arguments += _mapping_arguments(read, covers)
        bind = "--ro-bind" if scratch and not changeable else "--bind"
        for place in filter(None, (WORKSPACE_INSIDE, self.workdir)):
            arguments += [bind, str(self.workspace), place]
        if commands is not None:
            arguments += ["--ro-bind", str(commands), COMMANDS_INSIDE]
        arguments += ["--remount-ro", "/proc", "--remount-ro", "/dev", *self._shared_memory()]
        for folder in (place for place, is_folder in covers.items() if is_folder):
            arguments += ["--remount-ro", str(folder)]
        if self.image is None and not changeable:
            arguments += ["--remount-ro", "/"]
        return _without_links(arguments)

    def bare(self) -> list[str]:
        """Arguments for a process that only holds a network: programs, and nothing of the rollout.

        Without /dev, for which bubblewrap would create a second user namespace: a process that
        joins the network must own the namespace that it belongs to.
        """
        program = shutil.which("bwrap") or "bwrap"
        walls = ["--unshare-user-try", "--unshare-net", "--cap-drop", "ALL"]
        return [program, *walls, *_map_programs(), "--remount-ro", "/", "--chdir", "/"]

    def _shared_memory(self) -> list[str]:
        program = shutil.which("bwrap")
        sized = self.shared_bytes and program is not None and _supports_option(program, "--size")
        return [*(["--size", str(self.shared_bytes)] if sized else []), "--tmpfs", "/dev/shm"]

    def _namespace_arguments(self, dies_with_parent: bool, joins: bool) -> list[str]:
        if self.image is not None and os.getuid():  # its programs think that they are root
            user = ["--unshare-user", "--uid", "0", "--gid", "0"]
        else:
            user = _user_namespace_arguments()
        walls = [*user, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        walls += ["--unshare-cgroup-try", "--hostname", "houston", "--new-session"]
        walls += ["--cap-drop", "ALL"]
        if not (self.network or joins):
            walls.append("--unshare-net")
        if dies_with_parent:
            walls.append("--die-with-parent")
        return walls

    def _system(self) -> list[str]:
        etc_files: Sequence[str] = _NETWORK_ETC_FILES if self.network else ()
        if self.image is not None:
            arguments = ["--bind", str(self.image), "/"]
        else:
            arguments, etc_files = _map_programs(), (*_ETC_FILES, *etc_files)
        for name in etc_files:
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for folder in self._python_folders():
            arguments += ["--ro-bind", folder, folder]
        arguments += ["--dev", "/dev", "--proc", "/proc"]
        for name in _MASKED_FILES:
            if Path("/proc", name).exists():
                arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
        arguments += ["--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]
        return arguments

    def _python_folders(self) -> Sequence[str]:
        return () if self.image is not None else find_python_folders()

    def _mount_arguments(self) -> list[str]:
        self.refuse_hidden()
        arguments: list[str] = []
        for path in (*self.read, *self._environment_folders()):
            arguments += ["--ro-bind", str(path), str(path)]
        for name, path in self.data.items():
            arguments += ["--ro-bind", str(path), f"{DATA_FOLDER}/{name}"]
        for path in self._devices():
            arguments += ["--dev-bind", str(path), str(path)]
        if self.gpus:
            arguments += ["--ro-bind-try", "/sys", "/sys"]
        return arguments

    def _environment_folders(self) -> list[Path]:
        """Folders of the environment that lie outside what is mapped anyway."""
        if self.activate is None:
            return []
        check_python_environment(self.activate)
        mapped_folders = (*_SYSTEM_FOLDERS, *find_python_folders())
        folders = python_environment_folders(self.activate)
        return [
            path
            for path in folders
            if not any(path.is_relative_to(place) for place in mapped_folders)
        ]

    def _devices(self) -> list[Path]:
        devices = list(self.devices)
        if self.gpus:
            devices += [
                p for p in sorted(Path("/dev").iterdir()) if p.name.startswith(_GPU_DEVICES)
            ]
        return devices

    def _own_folders(self, scratch: Path | None) -> list[str]:
        if scratch is not None:
            return ["--bind", str(scratch), TEMPORARY_INSIDE, "--bind", str(scratch), "/tmp"]
        return ["--bind", str(self.temporary), "/tmp", "--bind", str(self.home), HOME_INSIDE]

    def _environment(self, scratch: Path | None) -> dict[str, str]:
        folders = [f"{folder}/bin" for folder in self._python_folders()]
        shut_in = self.kind == "bubblewrap"
        place = (TEMPORARY_INSIDE if shut_in else str(scratch)) if scratch else ""
        own_home = HOME_INSIDE if shut_in else str(Path.home())
        values = {
            "PATH": ":".join([*folders, _DEFAULT_PATH])
            if shut_in
            else os.environ.get("PATH", _DEFAULT_PATH),
            "HOME": place or own_home,
            "TMPDIR": place or "/tmp",
            "LANG": "C.UTF-8",
            "TERM": "screen-256color",
            "SHELL": "/bin/bash",
            "USER": "agent",
            "WORKSPACE": self.inside,
        }
        if self.image is not None:
            values |= {"HOME": IMAGE_HOME, "USER": "root", "TMPDIR": "/tmp"}
        if self.activate is not None:
            values |= activation_variables(self.activate, values["PATH"])
        return values

    def _settings(self, variables: Mapping[str, str]) -> Path:
        """A file with the arguments that set these variables, some of which are secrets.

        A NUL ends an argument there: what follows it would be the next one, such as `--bind`.
        """
        for name, value in variables.items():
            if "\0" in name or "\0" in value:
                raise HoustonError(
                    f"The variable {name.replace(chr(0), '?')} holds a NUL character.",
                    "No process was started.",
                )
        folder = self.temporary.parent
        folder.mkdir(parents=True, exist_ok=True)
        words = [word for pair in variables.items() for word in ("--setenv", *pair)]
        descriptor, name = tempfile.mkstemp(prefix="settings-", dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(f"{word}\0" for word in words))
        return Path(name)

    def would_show(self, path: Path) -> bool:
        """Whether processes would see `path` if it were not hidden."""
        return self.kind != "none" and bool(replace(self, hidden=(path,), apart=())._covers(()))

    def _covers(self, extra_read: Sequence[Path]) -> dict[Path, bool]:
        """Where something hidden would show below what is mapped, and whether it is a folder.

        A folder is mapped under the name it is given, also where that leads through a link.
        """
        system = [Path(name) for name in _SYSTEM_FOLDERS if not Path(name).is_symlink()]
        shown_folders = [*map(Path, self._python_folders()), *self.read, *extra_read]
        shown_folders += [] if self.image is not None else system
        shown_folders += self._environment_folders()
        places = [(folder.resolve(), folder.absolute()) for folder in shown_folders]
        places += [(path.resolve(), Path(DATA_FOLDER, name)) for name, path in self.data.items()]
        covers: dict[Path, bool] = {}
        for path in (*self.hidden, *self._set_apart(extra_read)):
            try:
                real = path.resolve(strict=True)
            except OSError:
                continue
            for folder, at in places:
                if real.is_relative_to(folder):
                    covers[at / real.relative_to(folder)] = real.is_dir()
        return covers

    def _set_apart(self, extra_read: Sequence[Path]) -> list[Path]:
        """What is to be covered of `apart`: not for whom it is named to, and no program's place."""
        programs = [*map(Path, find_python_folders()), *self._environment_folders()]
        if self.activate is not None:
            programs.append(self.activate)
        return [
            path
            for path in self.apart
            if path not in extra_read
            and not any(program.is_relative_to(path) for program in programs)
        ]

    def refuse_hidden(self) -> None:
        """Raise HoustonError where the task maps something of what agents must not see."""
        if self.kind == "none":
            return
        for path in (*self.read, *self._environment_folders(), *self.data.values()):
            for hidden in self.hidden:
                if path.resolve().is_relative_to(hidden.resolve()):
                    raise HoustonError(
                        f"The task maps {path}, which is in {hidden}, a folder that agents "
                        "must not see.",
                        "No process was started.",
                        "Let `sandbox.read`, `data.mounts` and `activate` name places outside it.",
                    )


def _map_programs() -> list[str]:
    """The system's own programs and libraries, read-only."""
    arguments: list[str] = []
    for name in _SYSTEM_FOLDERS:
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), name]  # noqa: PTH115
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    return arguments


def _user_namespace_arguments() -> list[str]:
    """A user namespace of its own; for root one in which no further one can be opened.

    An ordinary user's agent may open one: there it owns no more than that user does.
    """
    program = shutil.which("bwrap")
    if os.getuid() or program is None or not _has_user_namespaces():
        return ["--unshare-user-try"]
    if not _supports_option(program, "--disable-userns"):  # from 0.8 on
        return ["--unshare-user-try"]
    return ["--unshare-user", "--disable-userns"]


@lru_cache(maxsize=8)
def _supports_option(program: str, option: str) -> bool:
    """Whether this bubblewrap has the option."""
    process = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=30, check=False
    )
    return f"{option} " in f"{process.stdout} "


def _has_user_namespaces() -> bool:
    """Whether this machine has user namespaces; bubblewrap asks the same for its `-try`."""
    most = Path("/proc/sys/user/max_user_namespaces")
    return not most.exists() or int(most.read_text()) > 0


def _mapping_arguments(read: Sequence[Path], covers: Mapping[Path, bool]) -> list[str]:
    """Arguments that map `read` and put nothing over `covers`, outer places before inner ones.

    What is hidden below a mapped folder is covered after it; what is named below something hidden
    shows again. Of one place that is both, nothing shows.
    """
    mounts = [(len(path.parts), False, path) for path in read]
    mounts += [(len(path.parts), True, path) for path in covers]
    arguments: list[str] = []
    for _, covered, path in sorted(mounts):
        if not covered:
            arguments += ["--ro-bind", str(path), str(path)]
        elif covers[path]:
            arguments += ["--tmpfs", str(path)]
        else:
            arguments += ["--ro-bind", "/dev/null", str(path)]
    return arguments


_ONE_OPERAND = ("--tmpfs", "--dev", "--proc", "--remount-ro", "--size")
_MAX_LINKS = 40
_MountedSources = dict[PurePosixPath, Path | None]
"""What lies at a place: a file or folder of this machine, None where bubblewrap makes it."""


def _without_links(arguments: Sequence[str]) -> list[str]:
    """The same mounts at places without links on the way, as the process inside resolves them.

    bubblewrap makes the places while this machine's root is at /oldroot, and would follow a link
    that an agent left in what is mapped writable. One that a session puts there after this look
    still is: bubblewrap has no way to refuse it. Raises HoustonError for links in a circle.
    """
    mounted: _MountedSources = {}
    resolved: list[str] = []
    words = iter(arguments)
    for option in words:
        *source, place = [next(words) for _ in range(1 if option in _ONE_OPERAND else 2)]
        if option not in ("--size", "--symlink"):
            at = _resolve_inside(place, mounted)
            place = str(at)
            if option != "--remount-ro":
                mounted[at] = Path(source[0]) if source else None
        resolved += [option, *source, place]
    return resolved


def _resolve_inside(path: str, mounted: _MountedSources) -> PurePosixPath:
    at, links = PurePosixPath("/"), 0
    waiting = list(PurePosixPath(path).parts[:0:-1])
    while waiting:
        part = waiting.pop()
        target = _link_at(at / part, mounted)
        if target is None:
            at = at.parent if part == ".." else at / part
            continue
        links += 1
        if links > _MAX_LINKS:
            raise HoustonError(
                f"{path} cannot be mapped: links in the sandbox's own files lead in a circle.",
                "No process was started.",
            )
        if target.is_absolute():
            at, target = PurePosixPath("/"), target.relative_to("/")
        waiting += reversed(target.parts)
    return at


def _link_at(place: PurePosixPath, mounted: _MountedSources) -> PurePosixPath | None:
    """What the link at a place says; None where there is none, or something is mounted there."""
    below = next((folder for folder in place.parents if folder in mounted), None)
    source = mounted[below] if below is not None and place not in mounted else None
    if below is None or source is None:
        return None
    try:
        return PurePosixPath(os.readlink(source / place.relative_to(below)))  # noqa: PTH115
    except OSError:  # no link, or nothing yet
        return None


@lru_cache(maxsize=1)
def find_python_folders() -> tuple[str, ...]:
    """Folders of the Python that `python3` starts, where they lie outside the system's own.

    Such as a pyenv version or a virtual environment with its base; first the one whose bin/ leads.
    """
    program = shutil.which("python3")
    if program is None:
        return ()
    ask = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix]))"
    process = subprocess.run([program, "-c", ask], capture_output=True, timeout=30, check=False)
    if process.returncode:
        return ()
    prefixes: list[str] = []
    for prefix in json.loads(process.stdout):
        is_mapped = any(
            Path(prefix).is_relative_to(folder) for folder in (*_SYSTEM_FOLDERS, *prefixes)
        )
        too_much = Path.home().is_relative_to(prefix)
        if not is_mapped and not too_much:
            prefixes.append(prefix)
    return tuple(prefixes)
