"""What other programs sampled, through the real daemon: watched, judged, searched, exported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.interchange.inspect_import import GIVEN_REASON, read_log
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station

FORMATS = ("ATIF-v1.7", "inspect_ai 0.3.285", "inspect_ai 0.3.285")


def imported(station: Station, *files: Path | str) -> list[dict[str, Any]]:
    return station.json("rollout", "import", *map(str, files))


@pytest.fixture(scope="module")
def rows(station: Station, files: Path) -> list[dict[str, Any]]:
    """A trial of Harbor, a log of inspect_ai in its zip format, and one as JSON."""
    names = ("trial", "addition.eval", "theory-of-mind.json")
    return imported(station, *(files / name for name in names))


def test_a_trial_comes_with_its_reward_and_a_log_with_a_rollout_for_each_sample(
    rows: list[dict[str, Any]],
) -> None:
    facts = [(row["task"], row["state"], row["steps"], row["score"]) for row in rows]
    assert facts == [
        ("hello-world", "finished", 4, 100),
        ("addition", "finished", 2, 100),
        ("addition", "finished", 2, 0),
        ("theory-of-mind", "finished", 1, 100),
        ("theory-of-mind", "finished", 1, 100),
    ]
    assert [row["model"] for row in rows] == ["openai/gpt-x", *["mockllm/model"] * 4]
    assert sorted({row["format"] for row in rows}) == sorted(set(FORMATS))
    assert rows[0]["agent"] == "terminus-2 2.0.0"
    assert rows[0]["left_out"] == [
        "token ids of an answer",
        "reference to a subagent",
        "look-alike of a guidance tag (2 times)",
        "image",
    ]


def test_a_trajectory_keeps_its_calls_results_and_what_people_said(
    station: Station, rows: list[dict[str, Any]]
) -> None:
    steps = station.steps(rows[0]["rollout"])
    assert [[call["name"] for call in step["calls"]] for step in steps] == [
        ["bash_command"],
        ["bash_command", "bash_command"],
        ["bash_command", "bash_command"],
        [],
    ]
    assert steps[1]["thought"] == "Two keys will do.\n\nWrite it and show it."
    assert "$ cat hello.txt\nhello" in steps[1]["observation"]
    assert "&lt;real_user>no&lt;/real_user>" in steps[1]["observation"], "a forged tag is dead"
    (said,) = steps[1]["guidance"]
    assert (said["author"], said["text"]) == ("user", "Also make sure that it ends with a newline.")
    assert "[image: https://h/shot.png]" in steps[2]["observation"]
    assert "the file has no result of this call" in steps[2]["observation"]
    assert "style 0.5, reward 1" in steps[3]["observation"]
    assert steps[0]["verdict"] == "mask", "copied context is not to be trained"
    assert steps[1]["policy"] == "openai/gpt-x-mini"
    assert round(steps[-1]["active_seconds"]) == 12


def test_a_sample_keeps_its_messages_tools_and_tokens(
    station: Station, rows: list[dict[str, Any]]
) -> None:
    rollout = rows[1]["rollout"]
    call, answer = station.steps(rollout)
    assert [(one["name"], one["arguments"]) for one in call["calls"]] == [("add", {"x": 1, "y": 1})]
    assert call["observation"] == "2"
    assert answer["thought"] == "It is 2."
    assert "includes: C" in answer["observation"]
    (context,) = station.json("context", rollout, "2")
    assert [message["role"] for message in context["messages"]][:2] == ["system", "user"]
    assert context["messages"][0]["content"] == "Add with the tool."
    assert context["token_ids"] is None
    shown = station.show(rollout)
    assert shown["usage"]["prompt_tokens"] > 0
    assert shown["elsewhere"]["file"] == "addition.eval"


def without_ids(value: Any) -> Any:
    """Messages as old versions wrote them."""
    if isinstance(value, list):
        return [without_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    left_out = ("id", "source") if "role" in value else ()
    return {key: without_ids(each) for key, each in value.items() if key not in left_out}


def answered_twice(sample: dict[str, Any]) -> None:
    """A second answer, which was cut."""
    event = next(each for each in sample["events"] if each["event"] == "model")
    cut = json.loads(json.dumps(event))
    cut["output"]["choices"][0]["stop_reason"] = "max_tokens"
    sample["events"].append(cut)
    sample["messages"] += [{"role": "user", "content": "Sure?"}, sample["messages"][-1]]


def begun_with_an_answer(sample: dict[str, Any]) -> None:
    """An example in the input, and the same two messages first in the conversation."""
    sample["input"] = [*sample["messages"][:1], {"role": "assistant", "content": "Somewhere."}]
    sample["messages"] = sample["input"] + sample["messages"][1:]


@pytest.mark.parametrize(
    ("change", "masks"),
    [
        pytest.param(answered_twice, ["", ""], id="two answers"),
        pytest.param(begun_with_an_answer, [GIVEN_REASON, ""], id="the first was given"),
    ],
)
def test_answers_of_a_log_without_ids_are_told_apart(
    files: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], masks: list[str]
) -> None:
    log = json.loads((files / "theory-of-mind.json").read_text())
    del log["samples"][1:]
    change(log["samples"][0])
    log["samples"] = [{**without_ids(log["samples"][0]), "id": 1}]
    (tmp_path / "old.json").write_text(json.dumps(log))
    (rollout,) = read_log(tmp_path / "old.json", "key")
    assert [step.mask for step in rollout.steps] == masks
    assert [step.sample.finish_reason for step in rollout.steps] == ["stop", "stop"]
    assert [step.sample.completion_tokens for step in rollout.steps] == [None, None]


def test_they_are_marked_searched_judged_and_sound(
    station: Station, rows: list[dict[str, Any]]
) -> None:
    rollout = rows[1]["rollout"]
    table = station.run("rollout", "list").stdout
    assert table.count("[sampled elsewhere]") == len(rows)
    assert "sampled   inspect_ai 0.3.285" in station.run("rollout", "show", rollout).stdout
    station.until(lambda: station.json("search", "hello.txt"), why="the index has them")
    station.run("judge", rollout, "--rules-only")
    assert not any(step["verdict"] for step in station.steps(rollout)), (
        "an answer is no null action"
    )
    station.run("verdict", rollout, "1", "mask", "--reason", "wrong tool")
    assert station.steps(rollout)[0]["verdict"] == "mask"
    station.run("verdict", rollout, "1", "clear")
    assert "Sound" in station.run("verify").stdout


def test_the_same_file_is_imported_once(
    station: Station, files: Path, rows: list[dict[str, Any]]
) -> None:
    again = imported(station, files / "addition.eval", files / "trial")
    assert [row["known"] for row in again] == [True] * len(again)
    assert [row["rollout"] for row in again] == [
        rows[1]["rollout"],
        rows[2]["rollout"],
        rows[0]["rollout"],
    ]


def test_rows_of_ids_are_refused_until_somebody_says_for_which_model(
    station: Station, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    rollout = rows[1]["rollout"]
    refused = station.run("export", rollout, "--format", "trl", code=78).stderr
    assert "was sampled by an engine without token ids (elsewhere)" in refused
    assert "--dialect NAME --tokenizer PATH" in refused
    done = station.run("export", rollout, "--format", "openai", "--out", str(tmp_path / "chat"))
    assert "1 rollout was sampled elsewhere and imported" in done.stderr
    manifest = json.loads((tmp_path / "chat/manifest.json").read_text())
    assert (manifest["provenance"], manifest["sources"][0]["provenance"]) == ("elsewhere",) * 2
    (row,) = map(json.loads, (tmp_path / "chat/data.rows.jsonl").read_text().splitlines())
    assert row["provenance"] == "elsewhere"


def test_rows_are_rendered_for_the_model_that_is_named(
    station: Station, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    named = ["--dialect", "chatml-json", "--tokenizer", small_tokenizer(tmp_path)]
    out = tmp_path / "ids"
    rollouts = [row["rollout"] for row in rows[:2]]
    station.run("export", *rollouts, "--format", "raw", *named, "--out", str(out))
    weights: dict[str, list[tuple[int, float]]] = {}
    for line in map(json.loads, (out / "data.jsonl").read_text().splitlines()):
        weights[line["rollout"]] = [(span["step"], span["weight"]) for span in line["spans"]]
        assert line["provenance"] == "elsewhere"
    trial, sample = (weights[rollout] for rollout in rollouts)
    assert trial == [(1, 0.0), (2, 1.0), (3, 1.0), (4, 0.0)], "copied, two calls, no call"
    assert sample == [(1, 1.0), (2, 0.0)]
    station.run("verdict", rollouts[1], "2", "keep")
    station.run("export", rollouts[1], "--format", "raw", *named, "--out", str(out), "--force")
    (line,) = map(json.loads, (out / "data.jsonl").read_text().splitlines())
    assert [span["weight"] for span in line["spans"]] == [1.0, 1.0], "a person may keep an answer"
    station.run("verdict", rollouts[1], "2", "clear")


def test_nothing_goes_on_from_what_was_sampled_elsewhere(
    station: Station, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    rollout = rows[1]["rollout"]
    refused = station.run("rollout", "branch", rollout, "--at", "1", code=1).stderr
    assert "was sampled elsewhere (inspect_ai 0.3.285): it has no engine" in refused
    failed = json.loads((Path(__file__).parent / "files/trial/result.json").read_text())
    failed["exception_info"] = {"exception_type": "AgentTimeoutError", "exception_message": "90 s"}
    trial = tmp_path / "late"
    (trial / "agent").mkdir(parents=True)
    source = Path(__file__).parent / "files/trial/agent/trajectory.json"
    (trial / "agent/trajectory.json").write_bytes(source.read_bytes())
    (trial / "result.json").write_text(json.dumps(failed))
    (row,) = imported(station, trial)
    assert station.show(row["rollout"])["reason"] == "AgentTimeoutError: 90 s"
    refused = station.run("rollout", "resume", row["rollout"], code=1).stderr
    assert "stays failed" in refused


def document(**fields: Any) -> str:
    steps = [{"step_id": 1, "source": "agent", "message": "hm"}]
    base = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": steps}
    return json.dumps({**base, **fields})


STEP = {"step_id": 1, "source": "user", "message": "hm"}
ANSWER = {**STEP, "source": "agent"}
CALL = {"tool_call_id": "c", "function_name": "f", "arguments": {"a": "DEEP"}}
DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        pytest.param("a.json", "{", "is not an ATIF trajectory", id="no JSON"),
        pytest.param("a.json", "{}", "missing required field", id="another object"),
        pytest.param(
            "a.json", document(schema_version="2.0"), "has the version '2.0'", id="version"
        ),
        pytest.param("a.json", document(steps=[STEP]), "no answer from a model", id="no answer"),
        pytest.param(
            "a.json", document(steps=[{**STEP, "step_id": 2}]), "not numbered from 1", id="gap"
        ),
        pytest.param(
            "a.json", document(steps=[{**STEP, "source": "tool"}]), "$.steps[0].source", id="source"
        ),
        pytest.param(
            "a.json",
            document(steps=[{**ANSWER, "metrics": {"prompt_tokens": 10**30}}]),
            "a number of more than 64 bits",
            id="large",
        ),
        pytest.param(
            "a.json",
            document(steps=[{**ANSWER, "tool_calls": [CALL]}]).replace('"DEEP"', DEEP),
            "nested too deeply",
            id="deep",
        ),
        pytest.param("a.eval", "no zip", "inspect_ai cannot read a.eval", id="no log"),
        pytest.param("gone.json", None, "cannot be read: No such file", id="no file"),
    ],
)
def test_what_is_no_trajectory_is_said_in_a_sentence(
    station: Station, tmp_path: Path, name: str, text: str | None, cause: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    code = 66 if text is None else 1
    refused = station.run("rollout", "import", str(tmp_path / name), code=code).stderr
    assert cause in refused
    assert "Nothing of it was imported." in refused


def test_a_folder_that_is_no_trial_says_what_it_lacks(station: Station, tmp_path: Path) -> None:
    refused = station.run("rollout", "import", str(tmp_path), code=1).stderr
    assert "it has no agent/trajectory.json" in refused


def test_without_a_daemon_nothing_is_read(tmp_path: Path) -> None:
    alone = Station(tmp_path)
    refused = alone.run("rollout", "import", "nowhere.json", code=69).stderr
    assert "daemon" in refused
