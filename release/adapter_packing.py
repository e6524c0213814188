"""Packs the adapter that `houston experiment errands` trained into the package, for `houston demo`.

`python release/adapter_packing.py RUN_FOLDER [OUT]` rounds the weights to half
precision, takes this machine's paths out of the configuration, and notes what it was trained from
and on. It trains and measures nothing. Needs the extra `train`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from houston_daemon.demo.demo_tour import LIVE_ADAPTER
from houston_daemon.engines.local_model import MODEL_NAME
from houston_daemon.training.policies.policy_files import ADAPTER_FILES, LINEAGE_FILE

KEPT_LINEAGE = ("base_hash", "manifest", "recipe", "metrics", "rank", "version")
"""Of the policy's lineage: what says how it came about, on any machine."""


def pack_adapter(policy: Path, out: Path) -> int:
    """Write the adapter of a policy's folder to `out`; its size in bytes."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.half() for name, tensor in load_file(policy / ADAPTER_FILES[1]).items()}
    save_file(weights, out / ADAPTER_FILES[1], metadata={"format": "pt"})
    config: dict[str, Any] = json.loads((policy / ADAPTER_FILES[0]).read_bytes())
    config["base_model_name_or_path"] = MODEL_NAME
    _write_json(out / ADAPTER_FILES[0], config)
    lineage: dict[str, Any] = json.loads((policy / LINEAGE_FILE).read_bytes())
    kept: dict[str, Any] = {key: lineage[key] for key in KEPT_LINEAGE}
    kept["recipe"] = {**kept["recipe"], "base": MODEL_NAME}
    _write_json(out / LINEAGE_FILE, {"base": MODEL_NAME, **kept})
    return (out / ADAPTER_FILES[1]).stat().st_size


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Pack the policy that a run of the experiment trained."""
    run, *rest = arguments
    stage: dict[str, Any] = json.loads((Path(run) / "stages" / "train-full-1.json").read_bytes())
    policy = Path(run) / "ground" / "home" / "policies" / str(stage["policy"])
    out = Path(rest[0]) if rest else LIVE_ADAPTER
    print(f"{pack_adapter(policy, out)} bytes in {out}")


if __name__ == "__main__":
    main(sys.argv[1:])
