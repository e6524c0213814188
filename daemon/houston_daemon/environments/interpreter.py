"""The Python that Houston runs in, as a sandboxed child can start it; what of it must be mapped."""

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

# Not the virtual environment's own python: it is a link that may lead through others.
PYTHON = os.path.realpath(sys.executable)
PACKAGES = tuple(dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib"))))
"""Folders of installed packages."""
_SYSTEM = ("/usr", "/bin", "/lib", "/opt")


def mapped(*places: str | Path) -> Sequence[Path]:
    """The interpreter and `places`, as far as not every sandbox shows them anyway."""
    return unseen(Path(PYTHON).parent.parent, sys.base_prefix, *places)


def unseen(*places: str | Path) -> Sequence[Path]:
    """Those of `places` that not every sandbox shows anyway."""
    named = dict.fromkeys(map(Path, places))
    return [path for path in named if not any(map(path.is_relative_to, _SYSTEM))]


def missing(names: Iterable[str]) -> list[str]:
    """Those of the named packages that are not installed; nothing is imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def places_of(names: Iterable[str]) -> list[Path]:
    """Where packages lie, with the libraries that wheels keep beside them."""
    found: list[Path] = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        folder = spec.submodule_search_locations
        place = Path(folder[0]) if folder else Path(spec.origin)
        beside = place.with_name(f"{name}.libs")
        found += [place, *([beside] if beside.is_dir() else [])]
    return found
