"""What is refused of a run of reinforcement learning before anything is sampled."""

from pathlib import Path

import pytest

from houston_daemon.service.rollout_start_checks import check_policy
from houston_daemon.training.policies.policy_constraints import activation_command
from houston_daemon.training.rl import create_rl_run
from houston_daemon.training.rl.create_rl_run import RlRequest
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.errors import ExitCode, HoustonError
from tests.support.written_home import WrittenHome

ENGINES = """
default_engine = "far"
[engines.far]
kind = "chat"
url = "http://127.0.0.1:9/v1"
model = "x"
[engines.tiny]
kind = "embedded"
model = "no/model/here"
dialect = "words"
[engines.small]
kind = "embedded"
model = "no/model/here"
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedConfiguration:
    """A home whose default engine takes no policies."""
    (tmp_path / "houston.toml").write_text(ENGINES)
    return load_configuration(str(tmp_path), None)


@pytest.mark.parametrize(
    ("suite", "engine", "cause"),
    [
        ("word-worlds", "small", "for the dialect words, and engine small writes chatml-json"),
        ("small-workstation", "tiny", "for the dialect chatml-calls, and engine tiny writes words"),
        ("word-worlds", "tiny", "The model of the engine is not a folder"),
        ("small-workstation", "small", "The model of the engine is not a folder"),
        ("word-worlds", "far", "Engine far (chat) gives no token ids"),
    ],
)
def test_a_suite_is_for_engines_that_can_play_it(
    loaded: LoadedConfiguration, suite: str, engine: str, cause: str
) -> None:
    request = RlRequest("dapo", suite, "small", [], engine, "", "")
    with pytest.raises(HoustonError) as refused:
        create_rl_run.create_rl_run(loaded, request, create_rl_run.read_asked_recipe(request))
    assert cause in refused.value.cause


def test_an_engine_that_takes_no_policies_is_not_to_be_given_one(
    loaded: LoadedConfiguration,
) -> None:
    with pytest.raises(HoustonError, match="takes no policies") as refused:
        check_policy(loaded, "far", "policy@2")
    assert refused.value.code == ExitCode.USAGE
    assert "policy activate" not in refused.value.next
    command = "houston policy activate policy@2"
    assert activation_command(loaded, "policy@2") == f"{command} --engine tiny"
    assert activation_command(loaded, "policy@2", "small") == f"{command} --engine small"


@pytest.mark.parametrize(
    ("kind", "engine", "able"),
    [("lora", "served", "served"), ("full", "served", "tiny"), ("lora", "whole", "tiny")],
    ids=["an adapter at an address", "full weights need a child", "none for `lora = false`"],
)
def test_a_policy_is_advised_to_an_engine_that_can_be_given_it(
    kind: str, engine: str, able: str, tmp_path: Path
) -> None:
    served = '[engines.served]\nkind = "token"\nurl = "http://127.0.0.1:9/v1"\nmodel = "x"\n'
    whole = '[engines.whole]\nkind = "embedded"\nlora = false\n'
    (tmp_path / "houston.toml").write_text(ENGINES + served + whole)
    home = WrittenHome(tmp_path)
    home.insert(
        "policies", name="policy@2", family="policy", number=2, kind=kind, base="/m", base_hash="b",
        hash="h", folder="", parent="", run="", manifest="", seq=1, created_at=1,
    )  # fmt: skip
    home.close()
    loaded = load_configuration(str(tmp_path), None)
    assert activation_command(loaded, "policy@2", engine).endswith(f"policy@2 --engine {able}")
