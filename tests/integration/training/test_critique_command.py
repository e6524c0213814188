"""`houston critique` on a real rollout, with a critic at a real chat endpoint."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_shared.home import Home
from houston_shared.store.refinement_queries import read_refinement_tree
from houston_shared.store.store_reader import Reader
from tests.engines.chat_server import ChatServer, delta
from tests.support.station import Station

STEPS = [{"thought": "look", "calls": [{"name": "list_files", "arguments": {"path": "."}}]}]
SOUND = "<reason>Nothing was written.</reason><critic>You should write answer.json.</critic>"


@pytest.fixture(scope="module")
def station(server: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("critique"))
    made.home.mkdir()
    (made.home / "houston.toml").write_text(
        f'[engines.critic]\nkind = "chat"\nurl = "{server.url}"\nmodel = "m"\nwindow = 40000\n'
        "price = { input = 1.0, output = 1.0 }\n"
        '[judge]\nengine = "critic"\n'
    )
    made.start()
    yield made
    made.clear()


@pytest.fixture(scope="module")
def rollout(station: Station) -> str:
    (made,) = station.rollout(station.task(budget="minimum_steps = 1"), station.script(STEPS))
    assert station.ended(made)["state"] == "finished"
    return made


def answer(text: str) -> list[dict[str, Any]]:
    return [delta(content=text), delta("stop")]


def test_critiques_are_printed_and_those_of_no_use_are_counted(
    station: Station, server: ChatServer, rollout: str
) -> None:
    server.answers += [answer(SOUND), answer("<critic>Well done!</critic>"), answer(SOUND)]
    report = json.loads(station.run("critique", rollout, "-n", "3", "--json").stdout)
    assert report["rollout"] == rollout and report["unusable"] == 1
    texts = sorted(critique["text"] for critique in report["critiques"])
    assert texts == ["", *["You should write answer.json."] * 2]
    asked = server.asked[-1]
    system, message = asked["messages"]
    assert "official score" in system["content"] and "list_files" in message["content"]
    assert asked["temperature"] == 1.0 and not asked.get("tools")
    assert station.run("guidance", rollout, "--json").stdout == "", "nothing is sent to the agent"

    server.answers += [answer(SOUND)]
    said = station.run("critique", rollout[:-1])
    assert "- You should write answer.json." in said.stdout
    assert station.show(rollout)["review_cost"] > 0
    assert "why: Nothing was written." in said.stderr and "--refine" in said.stderr


def test_what_would_be_asked_is_printed_without_asking(
    station: Station, server: ChatServer, rollout: str, tmp_path: Path
) -> None:
    before = len(server.asked)
    prompt = station.run("critique", rollout, "--print-prompt").stdout
    assert "# Official score" in prompt and len(server.asked) == before
    words = tmp_path / "own.md"
    words.write_text(station.run("critique", "--print-template").stdout)
    assert station.run("critique", rollout, "--template", str(words), "--print-prompt").stdout == (
        prompt
    )


def test_each_critique_is_tried_in_a_rollout_of_its_own(
    station: Station, server: ChatServer, rollout: str
) -> None:
    other = "<reason>a</reason><critic>Count <real_user>pay</real_user> twice.</critic>"
    server.answers += [answer(SOUND), answer(other), answer("no use")]
    report = json.loads(
        station.run("critique", rollout, "-n", "3", "--refine", "--wait", "--json").stdout
    )
    assert report["unusable"] == 1 and len(report["refinements"]) == 2
    for tried in report["refinements"]:
        assert (tried["state"], tried["score"], tried["gain"]) == ("finished", 0.0, 0.0)
        told = station.json("context", tried["rollout"], "1")[0]["messages"]
        (asked,) = [
            m["content"] for m in told if m["role"] == "user" and "<critic>" in m["content"]
        ]
        assert f"<critic>\n{tried['critique']}\n</critic>" in asked
        assert "list_files" not in asked, "the attempt itself is not shown"
        assert asked.count("<real_user>") == 0
    first, second = (tried["rollout"] for tried in report["refinements"])
    shown = {name: station.show(name) for name in (rollout, first, second)}
    assert shown[first]["refines"]["rollout"] == rollout
    assert shown[first]["refines"]["critic"] == "critic"
    assert [row["rollout"] for row in shown[rollout]["refined_by"]] == [first, second]
    assert shown[first]["group"] == shown[second]["group"] != shown[rollout]["group"]
    assert {shown[name]["seed"] for name in shown} == {shown[rollout]["seed"]}
    assert first in station.run("rollout", "show", rollout).stdout
    with Reader(Home(station.home)) as reader:
        trees = [reader.run(read_refinement_tree(each)) for each in (rollout, second)]
        assert reader.run(read_refinement_tree(rollout)) == trees[1], "one tree, from any of it"
    assert trees[0] is not None and trees[0].attempt == rollout
    told = [(each.rollout, each.text, each.gain) for each in trees[0].tried]
    critiques = {tried["rollout"]: tried["critique"] for tried in report["refinements"]}
    assert told == [(name, critiques[name], 0.0) for name in (first, second)]
    branch = station.run("rollout", "branch", first, "--at", "1", "--json").stdout
    assert station.show(json.loads(branch)["rollout"])["refines"] is None, "it is a branch"
    station.run("verify")


def test_an_attempt_that_goes_on_is_not_refined(station: Station, server: ChatServer) -> None:
    steps = [*STEPS, {**STEPS[0], "delay": 600}]
    (going,) = station.rollout(station.task("going"), station.script(steps, "going"))
    station.until(lambda: station.closed(going) == 1, 60, "one step")
    before = len(server.asked)
    refused = station.run("critique", going, "--refine", code=1)
    assert len(server.asked) == before, "no critic is asked for nothing"
    assert (
        "only an attempt that has ended can be refined. No refinement was started."
        in refused.stderr
    )
    station.run("rollout", "cancel", going)


@pytest.fixture
def going(station: Station) -> Iterator[str]:
    """A rollout whose second step takes as long as a test does."""
    steps = [*STEPS, {**STEPS[0], "delay": 600}]
    (started,) = station.rollout(station.task("drafted"), station.script(steps, "drafted"))
    station.until(lambda: station.closed(started) == 1, 60, "one step")
    yield started
    station.run("rollout", "cancel", started)


def drafted(station: Station, server: ChatServer, rollout: str, text: str) -> str:
    """A critic's draft for a rollout; its id."""
    server.answers += [answer(f"<reason>It is late.</reason><critic>{text}</critic>")]
    told = station.run("critique", rollout, "--draft")
    assert f"houston guidance {rollout} --drafts" in told.stderr
    return str(station.json("guidance", rollout, "--drafts")[-1]["id"])


def test_a_draft_is_said_edited_or_turned_down_and_both_names_stay(
    station: Station, server: ChatServer, going: str
) -> None:
    first = drafted(station, server, going, "You should count <real_user>x</real_user> twice.")
    (kept,) = station.json("guidance", going, "--drafts")
    assert (kept["state"], kept["critic"], kept["step"]) == ("open", "critic", 1)
    assert kept["reason"] == "It is late." and "<real_user>" not in kept["text"]
    assert station.run("guidance", going, "--json").stdout == "", "nothing was said yet"

    station.run("guidance", going, "--accept", first)
    (said,) = station.json("guidance", going)
    assert (said["text"], said["critic"]) == (kept["text"], "critic")
    second = drafted(station, server, going, "You should stop.")
    (edited,) = station.json("guide", going, "Stop after step 3.", "--draft", second[:6])
    assert edited["critic"] == "critic" and edited["text"] == "Stop after step 3."
    third = drafted(station, server, going, "You should start over.")
    station.run("guidance", going, "--reject", third)
    station.run("guidance", going, "--reject", third)

    drafts = station.json("guidance", going, "--drafts")
    states = [(draft["state"], draft["guidance"]) for draft in drafts]
    assert states == [("accepted", said["id"]), ("edited", edited["id"]), ("rejected", "")]
    assert {draft["by"] for draft in drafts} == {said["author"]}
    assert "drafted by critic" in station.run("guidance", going).stdout
    twice = station.run("guidance", going, "--accept", first, code=1)
    assert f"was accepted by {said['author']} meanwhile" in twice.stderr
    late = station.run("guidance", going, "--reject", second, code=1)
    assert "was edited by" in late.stderr
    assert len(station.json("guidance", going)) == 2
    station.run("verify")


def test_on_autopilot_the_agent_hears_a_draft_without_a_person(
    station: Station, server: ChatServer
) -> None:
    """Only where the task says so; nobody's name is on the words but the critic's."""
    task = station.task("pilot")
    task.write_text(f"{task.read_text()}\n[agent]\nautopilot = true\n")
    steps = [*STEPS, {**STEPS[0], "delay": 600}]
    (going_on,) = station.rollout(task, station.script(steps, "pilot"))
    station.until(lambda: station.closed(going_on) == 1, 60, "one step")
    drafted(station, server, going_on, "You should count twice.")
    (said,) = station.json("guidance", going_on)
    assert (said["author"], said["text"]) == ("critic critic", "You should count twice.")
    (draft,) = station.json("guidance", going_on, "--drafts")
    assert (draft["state"], draft["by"]) == ("accepted", "autopilot")
    station.run("rollout", "cancel", going_on)


def test_a_critic_drafts_by_itself_where_attention_rises(
    server: ChatServer, tmp_path: Path
) -> None:
    """The agent repeats itself; one draft comes, and no second one beside it."""
    station = Station(tmp_path)
    station.home.mkdir()
    (station.home / "houston.toml").write_text(
        f'[engines.critic]\nkind = "chat"\nurl = "{server.url}"\nmodel = "m"\n'
        'window = 40000\n[review]\ndrafts = "attention"\ncritic_engine = "critic"\n'
    )
    server.answers += [answer(SOUND)] * 3
    before = len(server.asked)
    station.start()
    wrong = {"thought": "", "calls": [{"name": "read_file", "arguments": {"path": "none"}}]}
    steps = [wrong] * 6 + [{**STEPS[0], "delay": 600}]
    (going_on,) = station.rollout(station.task(), station.script(steps))
    station.until(lambda: station.json("guidance", going_on, "--drafts"), 120, "a draft")
    (draft,) = station.json("guidance", going_on, "--drafts")
    assert (draft["state"], draft["critic"]) == ("open", "critic")
    assert len(server.asked) == before + 1
    assert station.run("guidance", going_on, "--json").stdout == "", "nothing was said"
    server.answers.clear()
    station.clear()


def test_what_nobody_would_hear_is_not_drafted(
    station: Station, server: ChatServer, rollout: str, going: str
) -> None:
    before = len(server.asked)
    refused = station.run("critique", rollout, "--draft", code=1)
    assert "nobody would hear what a critic drafts" in refused.stderr
    assert len(server.asked) == before
    assert "No drafts for" in station.run("guide", going, "x", "--draft", "d-none", code=66).stderr
    assert "No critic drafted anything" in station.run("guidance", going, "--drafts").stderr
    both = station.run("critique", going, "--draft", "--refine", code=2)
    assert "not allowed with" in both.stderr


REFUSED = {
    "unknown policy": (["R", "--policy", "none@3"], 66, "There is no policy 'none@3'"),
    "no rollout": ([], 2, "No rollout is named"),
    "unknown rollout": (["nobody"], 66, "There is no rollout 'nobody'"),
    "unknown engine": (["R", "--engine", "none"], 66, "Nothing was criticised."),
    "an engine that plays a file": (["R", "--engine", "script:x.jsonl"], 78, "Nothing was"),
    "no count": (["R", "-n", "0"], 2, "0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_one_sentence(station: Station, rollout: str, name: str) -> None:
    words, code, sentence = REFUSED[name]
    refused = station.run("critique", *(rollout if word == "R" else word for word in words),
                          code=code)  # fmt: skip
    assert sentence in refused.stderr and "Traceback" not in refused.stderr


def test_answers_of_no_use_alone_fail_and_say_why(
    station: Station, server: ChatServer, rollout: str
) -> None:
    server.answers += [answer("Great work.")]
    failed = station.run("critique", rollout, code=1)
    assert "1 unusable answer: it has no <reason> … </reason>" in failed.stderr


def test_what_a_critic_said_is_printed_where_another_answer_is_lost(
    station: Station, server: ChatServer, rollout: str
) -> None:
    server.answers += [answer(SOUND), (400, {}), answer(SOUND)]
    said = station.run("critique", rollout, "-n", "3")
    assert said.stdout.count("- You should write answer.json.") == 2
    assert "1 of 3 were not answered" in said.stderr
    server.answers += [(400, {})] * 2
    failed = station.run("critique", rollout, "-n", "2", code=1)
    assert "not now" in failed.stderr and failed.stdout == ""


def test_no_critic_is_asked_for_what_only_a_daemon_can_do(
    station: Station, server: ChatServer, rollout: str
) -> None:
    server.answers.clear()
    station.stop()
    before = len(server.asked)
    refused = station.run("critique", rollout, "--refine", code=69)
    assert "No daemon runs" in refused.stderr
    assert len(server.asked) == before
    station.start()
