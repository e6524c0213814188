"""A task file says anything at all: it is read, or one sentence names the key and what is wrong."""

import os
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.commands.task_commands import describe_task
from houston_shared.errors import ConfigurationError
from houston_shared.task import Task, load_task

ODD = (
    '""', '"a\\u0000b"', '"../x"', '"/"', '"loop"', '"pipe"', '"a\\nb"', f'"{"a" * 5_000}"',
    "0", "-1", "9223372036854775808", "true", "nan", "inf", "[]", '["\\u0000"]', '["a", "a"]',
    "{}", "{a = -1}", '{"" = ""}', '{"\\u0000" = "x"}', '{"A=B" = "x"}', "1979-05-27", "[[1]]",
)  # fmt: skip
REFUSED = [
    ('environment_variables = {"A=B" = "x"}', "environment_variables"),
    ('environment_variables = {"" = "x"}', "environment_variables"),
    ('environment_variables = {A = "a\\u0000b"}', "environment_variables.A"),
    ('instructions_file = "pipe"', "no plain file"),
    ('instructions_file = "a\\u0000b"', "NUL"),
    ("gpus = {local = -1}", "gpus.local"),
    ('evaluate.command = "/"', "not a program"),
    ('rules = {error_patterns = ["("]}', "no regular expression"),
    ('rules = {guidance = [{said = "x", action = "["}]}', "no regular expression"),
    ('rules = {only = ["blind_edit"], off = ["after_best"]}', "cannot be given together"),
    ('rules = {off = ["no_such_rule"]}', "There is no rule 'no_such_rule'"),
    ('rules = {packages = ["not_there"]}', "There is no rule 'not_there'"),
    ('evaluate = {command = "true", required = ["\\u0000"]}', "NUL"),
]


def _folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def _load(folder: Path, text: str) -> None:
    file = folder / "task.toml"
    instructions = "" if "instructions" in text else 'instructions = "Do it."\n'
    name = "" if text.startswith("name ") else 'name = "odd"\n'
    file.write_text(f"{name}{instructions}{text}\n")
    describe_task(load_task(file))


def _keys(kind: type[msgspec.Struct], above: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        yield above + field.name
        for member in (field.type, *typing.get_args(field.type)):
            if isinstance(member, type) and issubclass(member, msgspec.Struct):
                yield from _keys(member, f"{above}{field.name}.")


@pytest.mark.slow
def test_every_key_takes_an_odd_value_or_refuses_it_in_a_sentence(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    for key in _keys(Task):
        for value in ODD:
            try:
                _load(folder, f"{key} = {value}")
            except ConfigurationError as problem:
                assert len(problem.cause) < 6_000 and "\0" not in problem.cause, (key, value)


@pytest.mark.parametrize(("text", "cause"), REFUSED)
def test_what_no_process_could_be_given_is_refused(text: str, cause: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        _load(_folder(tmp_path), text)
