"""`houston policy import`, `pull`, `push`, `merge` and `export`: policies as files.

`import` registers an external adapter or model, `pull` one of the hub; `push` commits one to it,
`merge` writes base and adapter as one model, `export` writes a GGUF file and compares its logits
with the model's. torch is imported inside the functions, since it takes seconds. Activating and
listing policies is the console's; the work is done in `training.policies`.
"""

import argparse
from pathlib import Path

from houston_daemon.artifacts.export_destination import open_destination
from houston_daemon.training.policies.policy_constraints import activation_command
from houston_shared import command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import require_daemon
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.hub_models import local_path, parse_hub_id
from houston_shared.policy_and_run_files import DEFAULT_FAMILY


def add_policy_import_arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR` or `ID`, `--base`, `--name`, `--parent`, `--note`, `--json`."""
    parser.add_argument(
        "folder",
        metavar="DIR|ID",
        help="adapter_config.json and adapter_model.safetensors, or a model as safetensors; or"
        " org/name@revision of the hub, which is pulled",
    )
    _add_registration_arguments(parser, "SmolLM2-135M-Instruct")


def _add_registration_arguments(parser: argparse.ArgumentParser, base: str) -> None:
    """`--base`, `--name`, `--parent`, `--note`, `--json`. base: the default, in words."""
    parser.add_argument(
        "--base",
        default="",
        metavar="MODEL",
        help=f"model that it was trained from, a folder or org/name@revision; default: {base}",
    )
    parser.add_argument(
        "--name", default=DEFAULT_FAMILY, help=f"family that it joins ({DEFAULT_FAMILY})"
    )
    parser.add_argument(
        "--parent", default="", metavar="POLICY", help="policy that training started from, if any"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="where it comes from")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_policy_import(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Copy it into the home and register it."""
    from houston_daemon.engines.hub_downloads import find_model
    from houston_daemon.engines.local_model import model_path
    from houston_daemon.training.policies.policy_registration import register_policy

    if local_path(arguments.folder) is None and parse_hub_id(arguments.folder):
        return run_policy_pull(arguments, loaded)
    note = command_output.print_note
    base = model_path()
    if arguments.base:
        base = find_model(arguments.base, "model", loaded.home, note, "No policy was registered.")
    if base is None:
        raise HoustonError("Name the model that it was trained from.", next="--base MODEL")
    result = register_policy(
        loaded,
        Path(arguments.folder).absolute(),
        base.absolute(),
        name=arguments.name,
        parent=arguments.parent,
        note=arguments.note,
    )
    _say_registered(loaded, result.name, result.existed, arguments.json)
    return int(ExitCode.DONE)


def _say_registered(
    loaded: LoadedConfiguration, name: str, existed: bool, as_json: bool, origin: str = ""
) -> None:
    """origin: where on the hub it came from; empty for a folder."""
    if as_json:
        fields = {"origin": origin} if origin else {}
        return command_output.print_json_line({"policy": name, "known": existed, **fields})
    command_output.print_line(name)
    if origin:
        command_output.print_note(f"from {origin}; its checksums are those of the hub")
    if existed:
        command_output.print_note(
            f"These files are already known as {name}; no new policy was made."
        )
    command_output.print_note(f"next: {activation_command(loaded, name)}")


def add_policy_pull_arguments(parser: argparse.ArgumentParser) -> None:
    """`ID`, `--base`, `--name`, `--parent`, `--note`, `--json`."""
    parser.add_argument(
        "folder",
        metavar="ID",
        help="org/name of the hub, or org/name@revision: branch, tag, commit",
    )
    _add_registration_arguments(parser, "what the repository says")


def run_policy_pull(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Fetch it, compare its checksums, and register it."""
    from houston_daemon.training.policies.policy_sharing import pull_policy

    require_daemon(loaded.home)  # before gigabytes are fetched
    result, origin = pull_policy(
        loaded,
        arguments.folder,
        base=arguments.base,
        name=arguments.name,
        parent=arguments.parent,
        note=arguments.note,
        tell=command_output.print_note,
    )
    _say_registered(loaded, result.name, result.existed, arguments.json, str(origin))
    return int(ExitCode.DONE)


def add_policy_push_arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `REPO`, `--merged`, `--private`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    parser.add_argument("repo", metavar="REPO", help="org/name on the hub; created if missing")
    parser.add_argument(
        "--merged", action="store_true", help="base and adapter as one model, not the adapter"
    )
    parser.add_argument(
        "--private", action="store_true", help="make it private; refuse one that is public"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_policy_push(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Commit it with its card, and look at what the hub then has."""
    from houston_daemon.engines.hub_access import redact_hub_token
    from houston_daemon.training.policies.policy_sharing import push_policy

    redact_hub_token()
    secret_redaction.install_secrets(loaded.config)
    pushed = push_policy(
        loaded.home,
        arguments.policy,
        arguments.repo,
        merged=arguments.merged,
        private=arguments.private,
    )
    if arguments.json:
        command_output.print_json_line(pushed._asdict())
        return int(ExitCode.DONE)
    what = "adapter" if pushed.kind == "lora" else "model"
    command_output.print_line(f"{pushed.policy} is at {pushed.origin}: {what}, card, lineage.")
    command_output.print_note(f"elsewhere: houston policy pull {pushed.origin}")
    return int(ExitCode.DONE)


def add_policy_merge_arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `--out`, `--force`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR|URL",
        help="folder to make, also in a store (s3://bucket/prefix): safetensors, config",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an earlier merge in this folder"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_policy_merge(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write it."""
    from houston_daemon.training.policies import adapter_merge, policy_files
    from houston_daemon.training.policies.policy_files import model_hash

    source = policy_files.trained_policy(loaded.home, arguments.policy)
    force, last = arguments.force, adapter_merge.MERGED_MARKER
    with open_destination(arguments.out, Path(), force, last) as (folder, place):
        policy_files.require_outside_policies(loaded.home, folder)
        adapter_merge.check_output_folder(folder, force)
        model = adapter_merge.load_merged(source.policy.kind, source.folder, source.base)
        written = adapter_merge.write_merged(model, source.base, folder, source.lineage, force)
        size = sum(file.stat().st_size for file in written)
        hash = model_hash(folder)
    if arguments.json:
        name = source.policy.name
        command_output.print_json_line({"policy": name, "out": place, "bytes": size, "hash": hash})
    else:
        command_output.print_line(f"{source.policy.name} is in {place}: {size / 1e6:,.1f} MB.")
    return int(ExitCode.DONE)


def add_policy_export_arguments(parser: argparse.ArgumentParser) -> None:
    """`POLICY`, `--format`, `--out`, `--precision`, `--no-check`, `--force`, `--json`."""
    parser.add_argument("policy", metavar="POLICY", help="its name: policy@2")
    parser.add_argument("--format", choices=("gguf",), default="gguf", help="file format (gguf)")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to write")
    parser.add_argument(
        "--precision",
        choices=("bf16", "f16", "f32"),
        default="bf16",
        help="precision of the weights (bf16, as in most models)",
    )
    parser.add_argument(
        "--no-check", action="store_true", help="do not read it back and compare its logits"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_policy_export(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write it, read it back, compare."""
    from houston_daemon.training.policies import adapter_merge, gguf_export, policy_files

    source = policy_files.trained_policy(loaded.home, arguments.policy)
    file = arguments.out.absolute()
    policy_files.require_outside_policies(loaded.home, file)
    _check_export_file(file, arguments.force)
    model = adapter_merge.load_merged(source.policy.kind, source.folder, source.base)
    gguf_export.write_gguf(model, source.base, file, arguments.precision, source.policy.name)
    gap = None
    if not arguments.no_check:
        gap = gguf_export.compare_logits(model, source.base, file)
        if gap > gguf_export.LOGIT_TOLERANCE[arguments.precision]:
            raise HoustonError(
                f"What {file} computes differs from {source.policy.name} by up to "
                f"{gap:.3g} in a logit.",
                "It was kept for inspection; do not use it.",
            )
    size = file.stat().st_size
    if arguments.json:
        command_output.print_json_line(
            {
                "policy": source.policy.name,
                "out": str(file),
                "bytes": size,
                "difference": gap,
            }
        )
    else:
        checked = "not checked" if gap is None else f"its logits differ by at most {gap:.2g}"
        command_output.print_line(
            f"{source.policy.name} is in {file}: {size / 1e6:,.1f} MB, {checked}."
        )
    return int(ExitCode.DONE)


def _check_export_file(file: Path, force: bool) -> None:
    """Raise HoustonError where something is there that nobody said is to be replaced."""
    if file.is_dir():
        raise HoustonError(f"{file} is a folder.", "Nothing was written.", "Name a file: --out")
    if file.exists() and not force:
        raise HoustonError(
            f"{file} already exists.",
            "Nothing was written.",
            "Name another --out, or replace it: --force",
        )
