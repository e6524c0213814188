"""`houston export` as people run it: on rollouts of a station, with what it says and returns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_shared import command, secret_redaction
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station

KEY = "rattle-42-lamp-Xy9-Zq7"
STEPS: list[dict[str, Any]] = [
    {"thought": "look 文😀", "calls": [{"name": "list_files", "arguments": {"path": "."}}]},
    {"thought": "read", "calls": [{"name": "open_file", "arguments": {"path": "README.md"}}] * 2},
    {"thought": f"the key is {KEY}", "calls": [{"name": "think", "arguments": {"thought": "a"}}]},
    {"thought": "done", "calls": [{"name": "create_file", "arguments": {
        "filename": "answer.txt", "content": "hi\n"}}]},
]  # fmt: skip


class Ready(NamedTuple):
    """A stopped station with two rollouts of one task and one of another, without a sandbox."""

    station: Station
    first: str
    second: str
    other: str
    tokenizer: str

    def export(self, *words: str, code: int = 0) -> Any:
        more = ["--tokenizer", self.tokenizer, "--dialect", "chatml-json"]
        return self.station.run("export", *words, *more, code=code)

    def told(self, *words: str) -> Any:
        return json.loads(self.export(*words, "--json").stdout)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    folder = tmp_path_factory.mktemp("export")
    station = Station(folder)
    tokenizer = small_tokenizer(folder)
    try:
        station.start()
        script = station.script(STEPS)
        first, second = station.rollout(station.task(), script, 2)
        (other,) = station.rollout(
            station.task("other", sandbox="none", files={"README.md": "Another.\n"}), script
        )
        for one in (first, second, other):
            station.ended(one)
        station.run("verdict", first, "2", "mask", "--reason", "read it twice")
        yield Ready(station, first, second, other, tokenizer)
    finally:
        station.clear()


def data(folder: Path, name: str = "data.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_bytes().splitlines()]


def test_every_format_of_every_rollout(ready: Ready, tmp_path: Path) -> None:
    for name in ("trl", "trl-chat", "slime", "openai", "raw"):
        told = ready.told("--all", "--format", name, "--out", str(tmp_path / name))
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert told["content_hash"] == manifest["content_hash"]
        assert told["rows"] == len(data(tmp_path / name)) == (14 if name == "trl-chat" else 3)
        assert manifest["counts"]["untrained"].keys() == {"mask: human"}
    marks = {line["rollout"]: line["provenance"] for line in data(tmp_path / "trl")}
    assert marks == {ready.first: "sandbox", ready.second: "sandbox", ready.other: "none"}
    assert manifest["provenance"] == "none"
    index = data(tmp_path / "openai", "data.rows.jsonl")
    assert {one["rollout"]: one["provenance"] for one in index} == marks


def test_the_masked_step_weighs_nothing_and_says_so(ready: Ready, tmp_path: Path) -> None:
    done = ready.export(ready.first, "--format", "slime", "--out", str(tmp_path / "out"))
    assert "--loss-mask-type qwen3 for Qwen3" in done.stderr, "a script's model is not known"
    (line,) = data(tmp_path / "out")
    answers = [one for one in line["messages"] if one["role"] == "assistant"]
    assert [one["step_loss_mask"] for one in answers] == [1, 0, 1, 1, 1]
    assert [one["content"] for one in answers[:2]] == ["look 文😀", "read"]
    assert line["tools"] and line["metadata"]["row"] == f"{ready.first}/0.0"


def test_by_task_by_group_and_twice(ready: Ready, tmp_path: Path) -> None:
    by_task = ready.told("--task", "probe", "--format", "trl", "--out", str(tmp_path / "a"))
    group = ready.station.query("SELECT group_id FROM rollouts WHERE id = ?", ready.first)[0][0]
    by_group = ready.told("--group", group, "--format", "trl", "--out", str(tmp_path / "b"))
    named = ["--format", "trl", "--out", str(tmp_path / "b")]
    again = ready.told(ready.second, ready.first, *named)
    assert by_task["content_hash"] == by_group["content_hash"] == again["content_hash"]
    assert by_group["written"] and not again["written"]
    other = ready.export(ready.other, *named, code=1)
    assert "holds another export" in other.stderr and "--force" in other.stderr


def test_rows_stand_as_rollouts_are_named_where_that_is_asked_for(
    ready: Ready, tmp_path: Path
) -> None:
    for at, ids in enumerate(([ready.first, ready.second], [ready.second, ready.first])):
        words = [*ids, "--as-named", "--format", "trl", "--out", str(tmp_path / str(at))]
        ready.told(*words)
        rows = [one["rollout"] for one in data(tmp_path / str(at))]
        assert list(dict.fromkeys(rows)) == ids
        assert not ready.told(*words)["written"]


def test_without_a_folder_it_lies_in_the_home(ready: Ready) -> None:
    told = ready.told(ready.first, "--format", "raw")
    assert Path(told["folder"]).parent == ready.station.home / "exports"
    assert not ready.told(ready.first, "--format", "raw")["written"]


def test_held_out_tasks_by_name_and_by_share(ready: Ready, tmp_path: Path) -> None:
    words = ["--all", "--format", "trl", "--recipe", "apollo", "--seed", "3"]
    told = ready.told(*words, "--out", str(tmp_path / "a"), "--held-out", "other")
    assert told["held_out"] == ["other"]
    assert {one["task"] for one in data(tmp_path / "a")} == {"probe"}
    assert len(data(tmp_path / "a")) == 14
    assert len(data(tmp_path / "a", "held_out.jsonl")) == 1
    share = ready.told(*words, "--out", str(tmp_path / "b"), "--held-out", "0.5")
    assert len(share["held_out"]) == 1


def test_what_is_masked_whole_is_refused_for_slime(ready: Ready, tmp_path: Path) -> None:
    ready.station.run("verdict", ready.second, "1-5", "mask")
    words = ["--task", "probe", "--format", "slime", "--out", str(tmp_path / "out")]
    refused = ready.export(*words, code=1)
    assert f"{ready.second}/0.0" in refused.stderr and "loss_mask[-0:]" in refused.stderr
    assert "--leave-out" in refused.stderr and not (tmp_path / "out").exists()
    assert ready.told(*words, "--leave-out")["rows"] == 1
    ready.station.run("verdict", ready.second, "1-5", "clear")


def test_a_key_that_became_one_later_never_leaves_the_home(ready: Ready, tmp_path: Path) -> None:
    ready.station.environment["PROBE_API_KEY"] = KEY
    try:
        words = [ready.first, "--out", str(tmp_path / "out")]
        refused = ready.export(*words, "--format", "trl", code=1)
        assert "[secret:PROBE_API_KEY]" in refused.stderr and KEY not in refused.stderr
        for name in ("trl-chat", "slime", "openai"):
            ready.export(*words, "--format", name, "--force")
            for file in (tmp_path / "out").iterdir():
                assert KEY.encode() not in file.read_bytes()
    finally:
        del ready.station.environment["PROBE_API_KEY"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--format", "trl"], 2, "Name rollouts, or one of --task"),
        (["--all", "--task", "probe", "--format", "trl"], 2, "Name rollouts, or one of"),
        (["--task", "nothing", "--format", "trl"], 1, "No rollout of the task 'nothing'"),
        (["nobody", "--format", "trl"], 66, "There is no rollout 'nobody'"),
        (["--all", "--format", "trl"], 78, "--dialect NAME --tokenizer PATH"),
        (["--all", "--format", "verl"], 2, "invalid choice: 'verl'"),
        (["--all", "--format", "slime", "--parquet"], 2, "no parquet file for slime"),
        (["--all", "--format", "trl", "--recipe", "apolo"], 66, "There is no recipe apolo"),
        (["--all", "--format", "trl", "--held-out", "1.2"], 2, "Nothing can be held out"),
        (["--all", "--format", "trl", "--held-out", "nope"], 2, "of the task 'nope'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_asked(
    words: list[str],
    code: int,
    said: str,
    ready: Ready,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: nine interpreters say nothing more."""
    monkeypatch.setenv(
        secret_redaction.SECRETS_VARIABLE, ""
    )  # the command sets it; put back at the end
    try:
        assert command.main(["export", *words, "--home", str(ready.station.home)]) == code
    except SystemExit as ended:
        assert ended.code == code
    assert said in capsys.readouterr().err
