"""A virtual or conda environment, as the variables that put its programs first.

Nothing of it is run: its `activate` scripts are for shells that a person types into, and what a
task needs beyond PATH it sets in its environment variables.
"""

from pathlib import Path

from houston_shared.errors import HoustonError

_SETTINGS = "pyvenv.cfg"


def is_conda(folder: Path) -> bool:
    """Whether it is a conda environment, also one that was packed and unpacked."""
    return (folder / "conda-meta").is_dir()


def check(folder: Path) -> None:
    """Raise HoustonError for a folder that is neither kind of environment."""
    try:
        found = (folder / "bin").is_dir()
        found = found and (is_conda(folder) or (folder / _SETTINGS).is_file())
    except OSError:  # such as a name that is too long
        found = False
    if not found:
        raise HoustonError(
            f"{folder} is no virtual environment (pyvenv.cfg) and no conda one (conda-meta).",
            "No process was started.",
            "Correct `activate` of the task.",
        )


def scripts(folder: Path) -> list[str]:
    """Names of a conda environment's own scripts, which packages leave there and nobody runs."""
    try:
        return sorted(file.name for file in (folder / "etc/conda/activate.d").iterdir())
    except OSError:
        return []


def folders(folder: Path) -> list[Path]:
    """What must be mapped for it to work: itself, and the Python that a virtual one was made of."""
    found = [folder]
    try:
        lines = (folder / _SETTINGS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip():
            found.append(Path(value.strip()).parent)
    return [*found, *(path.resolve() for path in found if path.resolve() != path)]


def variables(folder: Path, path: str) -> dict[str, str]:
    """PATH (what it was is `path`), and the name that programs know the environment by."""
    name = "CONDA_PREFIX" if is_conda(folder) else "VIRTUAL_ENV"
    return {"PATH": f"{folder}/bin:{path}", name: str(folder)}
