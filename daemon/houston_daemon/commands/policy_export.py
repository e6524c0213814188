"""`houston policy export policy@2 --format gguf --out FILE`: for llama.cpp and its kin."""

import argparse
from pathlib import Path

from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError


def arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `--format`, `--out`, `--precision`, `--no-check`, `--force`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    parser.add_argument("--format", choices=("gguf",), default="gguf", help="of the file (gguf)")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to write")
    parser.add_argument(
        "--precision",
        choices=("bf16", "f16", "f32"),
        default="bf16",
        help="of the weights (bf16, which is what most models are)",
    )
    parser.add_argument(
        "--no-check", action="store_true", help="do not read it back and compare its logits"
    )
    parser.add_argument("--force", action="store_true", help="replace the file that is there")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write it, read it back, compare."""
    from houston_daemon.training.policies import (
        by_name,
        files,
        gguf,
        merging,  # torch: seconds
    )

    found = by_name.trained(loaded.home, arguments.policy)
    file = arguments.out.absolute()
    files.check_outside(loaded.home, file)
    _check(file, arguments.force)
    model = merging.merged(found.policy.kind, found.folder, found.base)
    gguf.write(model, found.base, file, arguments.precision, found.policy.name)
    worst = None
    if not arguments.no_check:
        worst = gguf.compare(model, found.base, file)
        if worst > gguf.TOLERANCE[arguments.precision]:
            raise HoustonError(
                f"What {file} computes differs from {found.policy.name} by up to {worst:.3g} in a "
                "logit.",
                "It was left there to be looked at; do not use it.",
            )
    size = file.stat().st_size
    if arguments.json:
        out.json_line(
            {"policy": found.policy.name, "out": str(file), "bytes": size, "difference": worst}
        )
    else:
        checked = "not checked" if worst is None else f"its logits differ by at most {worst:.2g}"
        out.line(f"{found.policy.name} is in {file}: {size / 1e6:,.1f} MB, {checked}.")
    return int(ExitCode.DONE)


def _check(file: Path, force: bool) -> None:
    """Raise HoustonError where something is there that nobody said is to be replaced."""
    if file.is_dir():
        raise HoustonError(f"{file} is a folder.", "Nothing was written.", "Name a file: --out")
    if file.exists() and not force:
        raise HoustonError(
            f"{file} is there already.",
            "Nothing was written.",
            "Name another --out, or replace it: --force",
        )
