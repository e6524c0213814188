"""Which roles are trained: the one table, what is refused, and rows of one role alone."""

import argparse
from pathlib import Path
from typing import get_args

import pytest

from houston_daemon.commands import export_commands
from houston_daemon.training.rl.rl_recipe import load_rl_recipe
from houston_daemon.training.rows.row_builder import build_chat_rows
from houston_daemon.training.rows.training_row import RowOptions
from houston_daemon.training.sft.sft_recipe import load_recipe
from houston_shared.errors import ConfigurationError, ExitCode
from houston_shared.home import Home
from houston_shared.sample_roles import (
    ROW_ROLES,
    SAMPLE_ROLES,
    STEP_ROLES,
    SampleRole,
    parse_row_roles,
)
from houston_shared.store.store_reader import Reader
from tests.training.rows.played_rollouts import Family, Stage
from tests.training.rows.test_trained_answers import turn

UNTRAINED = "role policy: it is not trained"


def test_the_table_has_every_role() -> None:
    assert set(SAMPLE_ROLES) == set(get_args(SampleRole))
    assert ROW_ROLES == ("policy", "planner", "summary") == RowOptions().roles
    assert STEP_ROLES == ("policy", "planner")


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        (["policy", "pilot"], "There is no role 'pilot'."),
        (["lookahead"], "No rows are made of the role 'lookahead', which corrects a failed call"),
        (["judge"], "No rows are made of the role 'judge'"),
        ([], "There is no role ''."),
    ],
)
def test_a_role_without_rows_is_refused_in_a_sentence(names: list[str], cause: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_row_roles(names, "Nothing was exported.")
    assert refused.value.cause.startswith(cause)
    assert refused.value.next == "Name roles that are trained: policy, planner, summary."
    assert refused.value.code == ExitCode.CONFIGURATION


def test_roles_are_in_one_order_whoever_names_them() -> None:
    assert parse_row_roles(["summary", "policy", "summary"]) == ("policy", "summary")


@pytest.mark.parametrize("load", [load_recipe, load_rl_recipe])
def test_recipes_name_roles_and_refuse_others(load: object) -> None:
    assert callable(load)
    assert load("small", ['roles=["policy"]']).roles == ("policy",)
    with pytest.raises(ConfigurationError, match="no role 'pilot'"):
        load("small", ['roles=["pilot"]'])


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ((), ("policy", "planner", "summary")),
        (("--no-summaries",), ("policy", "planner")),
        (("--roles", "summary"), ("summary",)),
        (("--roles", "summary,policy"), ("policy", "summary")),
    ],
)
def test_an_export_names_roles(
    words: tuple[str, ...], roles: tuple[str, ...], tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser()
    export_commands.add_export_arguments(parser)
    arguments = parser.parse_args(["r", "--format", "raw", *words])
    assert export_commands.read_export_rows(arguments, Home(tmp_path)).roles == roles


def test_an_export_refuses_a_role_that_is_none(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    export_commands.add_export_arguments(parser)
    for words, cause in (
        (["--roles", "pilot"], "no role 'pilot'"),
        (["--roles", "summary", "--no-summaries"], "leaves nothing of --roles summary"),
    ):
        arguments = parser.parse_args(["r", "--format", "raw", *words])
        with pytest.raises(ConfigurationError, match=cause):
            export_commands.read_export_rows(arguments, Home(tmp_path))


@pytest.mark.parametrize("way", ["ledger", "rendered", "messages"])
def test_summaries_alone(stage: Stage, family: dict[str, Family], way: str) -> None:
    """Contexts make no row, and what the policy said in a summary's request says why it has no
    weight: no row has it."""
    played = stage.play(family["qwen3"], [turn(n) for n in range(1, 13)], context=1_300)
    options = RowOptions(
        roles=("summary",), thoughts="strip" if way == "rendered" else "as sampled"
    )
    if way == "messages":
        with Reader(stage.rig.home) as reader:
            chats = list(build_chat_rows(reader, played.id, options))
        assert chats and {row.kind for row in chats} == {"summary"}
        said = [one for row in chats for one in row.messages if one.why]
        assert {one.why for one in said} == {UNTRAINED}
        assert all(row.messages[-1].weight == 1 for row in chats)
        return
    rows = stage.rows(played, options)
    assert rows and {row.kind for row in rows} == {"summary"}
    weighed = {(span.role, span.weight, span.why) for row in rows for span in row.spans}
    assert weighed == {("policy", 0.0, UNTRAINED), ("summary", 1.0, "")}
