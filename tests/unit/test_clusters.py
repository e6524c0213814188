"""The files that docs/clusters.md hands out say what Houston and their readers understand."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from houston_shared.config import Configuration

FOLDER = Path(__file__).parents[2] / "docs" / "clusters"
BATCH, MANIFEST = FOLDER / "houston.sbatch", FOLDER / "raycluster.yaml"
VARIABLE = re.compile(r"\bHOUSTON__([A-Z]+)__([A-Z_]+)\b")


def settings(text: str) -> set[tuple[str, str]]:
    """Section and key of each variable that stands for a key of the configuration."""
    return {(section.lower(), key.lower()) for section, key in VARIABLE.findall(text)}


@pytest.mark.parametrize("file", [BATCH, MANIFEST], ids=lambda file: str(file.name))
def test_their_variables_are_keys_of_the_configuration(file: Path) -> None:
    sections = {field.name: field.type for field in msgspec.structs.fields(Configuration)}
    named = settings(file.read_text())
    assert ("ray", "address") in named
    for section, key in named:
        assert key in sections[section].__struct_fields__, (section, key)


def test_the_script_is_one_that_bash_reads() -> None:
    subprocess.run(["bash", "-n", str(BATCH)], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing_in_the_script() -> None:
    done = subprocess.run(["shellcheck", str(BATCH)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_the_daemon_sits_beside_rays_head_and_workers_find_its_recorder() -> None:
    claim, service, cluster = yaml.safe_load_all(MANIFEST.read_text())
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    containers = {container["name"]: container for container in head["containers"]}
    daemon = _variables(containers["daemon"])
    assert list(containers) == ["ray-head", "daemon"], "KubeRay takes the first for Ray's own"
    assert {mount["name"] for mount in containers["daemon"]["volumeMounts"]} > {"ray", "shm"}
    volumes = {volume["name"]: volume for volume in head["volumes"]}
    assert volumes["home"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    port = service["spec"]["ports"][0]["port"]
    reached = f"tcp://{service['metadata']['name']}:{port}"
    assert daemon["HOUSTON__RECORDER__ADDRESS"] == reached
    assert daemon["HOUSTON__RECORDER__LISTEN"].endswith(f":{port}")
    assert service["spec"]["selector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    for group in cluster["spec"]["workerGroupSpecs"]:
        (worker,) = group["template"]["spec"]["containers"]
        (mount,) = worker["volumeMounts"]
        assert daemon["HOUSTON__RAY__ENDPOINT"].startswith(mount["mountPath"] + "/")
        assert worker["env"] == containers["ray-head"]["env"], "the same token"


def _variables(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}
