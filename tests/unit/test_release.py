"""What is published: the metadata a build gives, the steps that the docs promise, and what `make`
says where something it needs is not there."""

import importlib.util
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """A module of release/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "release" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_metadata, fresh_root = load("build_metadata"), load("fresh_root")
REPOSITORY = "https://git.example/group/houston"
REMOTES = {
    "https": "https://git.example/group/houston.git",
    "https, with a password": "https://me:secret@git.example/group/houston",
    "ssh": "ssh://git@git.example:2222/group/houston.git",
    "as scp writes it": "git@git.example:group/houston.git",
}


@pytest.mark.parametrize("kind", REMOTES)
def test_a_remote_is_published_as_an_address_without_secrets(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSTON_REPOSITORY", REMOTES[kind])
    assert build_metadata.find_repository(ROOT) == REPOSITORY


@pytest.mark.parametrize("remote", ["", "/srv/git/houston", "../houston"])
def test_what_is_no_address_is_not_published(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSTON_REPOSITORY", remote)
    assert build_metadata.find_repository(tmp_path) == ""
    assert build_metadata.source_urls("") == {}


def test_the_remote_of_the_checkout_counts_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOUSTON_REPOSITORY", raising=False)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert build_metadata.find_repository(tmp_path) == ""
    add = ["git", "-C", str(tmp_path), "remote", "add", "origin", REMOTES["as scp writes it"]]
    subprocess.run(add, check=True)
    assert build_metadata.find_repository(tmp_path) == REPOSITORY


def test_links_of_the_readme_lead_somewhere_from_an_index() -> None:
    text = (ROOT / "README.md").read_text()
    published = build_metadata.with_absolute_links(text, REPOSITORY)
    links = build_metadata.LINK.findall(text)
    assert links
    for picture, _, target in links:
        assert f"]({REPOSITORY}/{'raw' if picture else 'blob'}/HEAD/{target})" in published
    assert not build_metadata.LINK.search(published)
    nowhere = build_metadata.with_absolute_links("![A](a.svg)[b](c/d.md#e) [f](https://g)", "")
    assert nowhere == "b [f](https://g)"


def test_every_step_of_a_fresh_root_stands_in_the_docs() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    pip, uv = fresh_root.TOOL_STEPS["pip"], fresh_root.TOOL_STEPS["uv"]
    steps = [fresh_root.SYSTEM_STEP, *pip.values(), *fresh_root.FIRST_STEPS.values()]
    # Who has uv has it on the PATH.
    steps += [step.replace("~/uv/bin/", "") for name, step in uv.items() if name != "uv itself"]
    assert not [step for step in steps if step not in page]


def test_every_extra_stands_in_the_docs() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys() - {"dev"}
    assert not [extra for extra in extras if f"`{extra}`" not in page]


def test_pythons_of_the_metadata_are_those_that_are_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        line.rpartition(" ")[2]
        for line in project["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    assert named == list(load("check_release").PYTHONS)
    assert named[0] == project["requires-python"].removeprefix(">=")


MISSING = {
    "no builder": (False, True, "Neither podman, docker nor buildah is here", "apt install podman"),
    "no wheel": (True, False, "dist/ has no wheel", "make release"),
}


@pytest.mark.parametrize("what", MISSING)
def test_an_image_that_cannot_be_built_says_why(what: str, tmp_path: Path) -> None:
    builder, wheel, cause, advice = MISSING[what]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "ls", "make"):
        (programs / name).symlink_to(str(shutil.which(name)))
    if builder:
        (programs / "podman").write_text("#!/bin/sh\nexit 0\n")
        (programs / "podman").chmod(0o755)
    if wheel:
        (tmp_path / "dist").mkdir()
        (tmp_path / "dist" / "x.whl").touch()
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    done = subprocess.run(
        ["make", "image"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert cause in done.stderr and advice in done.stderr
