"""`houston policy merge policy@2 --out DIR`: base and adapter as one model."""

import argparse
from pathlib import Path

from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode


def arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `--out`, `--force`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder to make: safetensors, config"
    )
    parser.add_argument("--force", action="store_true", help="replace what was merged there before")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write it."""
    from houston_daemon.training.policies import (
        by_name,
        files,
        merging,  # torch: seconds
    )
    from houston_daemon.training.policies.hashing import model_hash

    found = by_name.trained(loaded.home, arguments.policy)
    folder = arguments.out.absolute()
    files.check_outside(loaded.home, folder)
    merging.check_place(folder, arguments.force)
    model = merging.merged(found.policy.kind, found.folder, found.base)
    written = merging.write(model, found.base, folder, found.lineage, arguments.force)
    size = sum(file.stat().st_size for file in written)
    if arguments.json:
        hash = model_hash(folder)
        name = found.policy.name
        out.json_line({"policy": name, "out": str(folder), "bytes": size, "hash": hash})
    else:
        out.line(f"{found.policy.name} is in {folder}: {size / 1e6:,.1f} MB.")
    return int(ExitCode.DONE)
