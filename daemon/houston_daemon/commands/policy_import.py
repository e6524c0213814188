"""`houston policy import DIR`: take an adapter or a model that was trained elsewhere over."""

import argparse
from pathlib import Path

from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.policy_names import FAMILY


def arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR`, `--base`, `--name`, `--parent`, `--note`, `--json`."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="adapter_config.json and adapter_model.safetensors, or a model as safetensors",
    )
    parser.add_argument(
        "--base",
        type=Path,
        metavar="DIR",
        help="model that it was trained from; default: SmolLM2-135M-Instruct",
    )
    parser.add_argument("--name", default=FAMILY, help=f"family that it joins ({FAMILY})")
    parser.add_argument(
        "--parent", default="", metavar="POLICY", help="policy that training began from, if any"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="where it comes from")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Copy it into the home and register it."""
    from houston_daemon.engines.model import model_path
    from houston_daemon.training.policies.registering import register

    base = arguments.base or model_path()
    if base is None:
        raise HoustonError("Name the model that it was trained from.", next="--base DIR")
    name, known = register(
        loaded,
        arguments.folder.absolute(),
        base.absolute(),
        name=arguments.name,
        parent=arguments.parent,
        note=arguments.note,
    )
    if arguments.json:
        out.json_line({"policy": name, "known": known})
    else:
        out.line(name)
        if known:
            out.note(f"These very files are known as {name}; no other policy was made of them.")
        out.note(f"next: houston policy activate {name}")
    return int(ExitCode.DONE)
