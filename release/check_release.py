"""Checks what is in `dist/` as those will use it who have no checkout: `make release`.

    python release/check_release.py dist [--python python3.13]…

Looks into the wheel (all that git tracks of the three packages, and nothing else), asks twine about
the metadata, resolves the base install for aarch64, and in a fresh environment outside of the
checkout installs the wheel and runs the demo without a screen, once for each Python. It builds and
uploads nothing. Exit code 1 names what is wrong.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from email import message_from_string
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"houston_console": "console", "houston_daemon": "daemon", "houston_shared": "shared"}
OTHER_MACHINES = {
    "aarch64": ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64")
}
"""Machines besides this one, with the tags of wheels that they take; pip adds none by itself."""
PYTHONS = ("3.11", "3.12", "3.13")
"""Of the classifiers; the base install has wheels for each."""


class Wrong(Exception):
    """What is not as it must be, in a sentence."""


def main() -> int:
    """Check; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with one wheel and one sdist")
    parser.add_argument(
        "--python", action="append", default=[], help="interpreter to try the wheel with"
    )
    arguments = parser.parse_args()
    try:
        wheel, sdist = only(arguments.dist, "*.whl"), only(arguments.dist, "*.tar.gz")
        metadata = check_contents(wheel)
        check_metadata(wheel, sdist, metadata)
        for machine, tags in OTHER_MACHINES.items():
            check_other_machine(wheel, machine, tags)
        for python in arguments.python or [sys.executable]:
            try_wheel(wheel, python)
    except Wrong as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1
    print(f"{wheel.name} is sound")
    return 0


def only(folder: Path, pattern: str) -> Path:
    """The one file of this pattern. Raises Wrong."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Wrong(f"{folder} has {len(found)} files {pattern}, and one is expected")
    return found[0].resolve()


def check_contents(wheel: Path) -> dict[str, str]:
    """Raise Wrong unless the wheel holds the tracked files of the packages; its metadata."""
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", *PACKAGES.values()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    expected = {
        name.partition("/")[2]
        for name in tracked
        if name and name.split("/")[1] in PACKAGES and (ROOT / name).is_file()
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(about).decode()
    files = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    if missing := sorted(expected - files):
        raise Wrong(f"the wheel lacks {len(missing)} files of the source, such as {missing[0]}")
    if more := sorted(files - expected):
        raise Wrong(f"the wheel has {len(more)} files that git does not track, such as {more[0]}")
    print(f"contents: {len(files)} files, {wheel.stat().st_size / 1e6:.1f} MB")
    message = message_from_string(text)
    links = "; ".join(message.get_all("Project-URL") or [])
    return {"version": message["Version"], "links": links, "text": message.get_payload()}


def check_metadata(wheel: Path, sdist: Path, metadata: dict[str, str]) -> None:
    """Raise Wrong for what an index would refuse or show badly."""
    run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
    if "](docs/" in metadata["text"]:
        raise Wrong("the description has links that lead nowhere outside of the repository")
    print(f"metadata: version {metadata['version']}, {metadata['links'] or 'no URLs'}")
    if not metadata["links"]:
        print("  next: make release REPOSITORY=https://… says where the source is")
    if "dev" in metadata["version"]:
        print("  a rehearsal: there is no tag here. next: git tag v0.2.0, then make release")


def check_other_machine(wheel: Path, machine: str, tags: tuple[str, ...]) -> None:
    """Raise Wrong where a dependency of the base install has no wheel for another machine."""
    platforms = [f"--platform={tag}" for tag in tags]
    for python in PYTHONS:
        with tempfile.TemporaryDirectory() as folder:
            run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--target", folder,
                 "--only-binary=:all:", *platforms, "--python-version", python, str(wheel)]
            )  # fmt: skip
    print(f"{machine}: wheels for the base install on Python {', '.join(PYTHONS)}")


def try_wheel(wheel: Path, python: str) -> None:
    """Install the wheel into a fresh environment and run the demo there. Raises Wrong."""
    with tempfile.TemporaryDirectory(prefix="houston-release-") as name:
        folder = Path(name)
        begun = time.monotonic()
        run([python, "-m", "venv", str(folder / "venv")])
        scripts = folder / "venv" / "bin"
        run([str(scripts / "pip"), "install", "--quiet", str(wheel)])
        installed = time.monotonic()
        # Nothing of the checkout, and nothing of who runs this, is in the way or of help.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOUSTON_", "HOUSTON__", "PYTHON", "VIRTUAL_ENV"))
        }
        environment |= {"PATH": f"{scripts}:{os.environ['PATH']}", "HOUSTON_HOME": f"{folder}/home"}
        environment |= {"HOUSTON__HOSTS__ROOT": f"{folder}/host"}
        for words in (["--version"], ["completion", "bash"], ["demo", "--headless"]):
            run([str(scripts / "houston"), *words], folder, environment)
        run([str(scripts / "houston-agents"), "verify"], folder, environment)
        seconds = time.monotonic() - installed
        print(f"{python}: installed in {installed - begun:.0f} s, demo in {seconds:.0f} s")


def run(
    command: list[str], folder: Path | None = None, environment: dict[str, str] | None = None
) -> None:
    """Run a command; raises Wrong with the end of what it said where it fails."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-1500:]
        raise Wrong(f"`{' '.join(command)}` ended with {done.returncode}:\n{said}")


if __name__ == "__main__":
    sys.exit(main())
