"""`houston ask` as a user types it: answer, steps, sources and exit codes; it can be guided."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.station import Station

pytestmark = pytest.mark.timeout(600)
QUESTION = "In which year was the town founded where the captain of the Morning Heron was born?"


def step(name: str, value: str, **said: str) -> dict[str, object]:
    argument = {"search": "query", "code": "code"}.get(name, "text")
    call = {"name": name, "arguments": {argument: value}}
    return {"thought": f"I {name}", "calls": [call], **({"answers": said} if said else {})}


NO = json.dumps({"answered": False, "reason": "the town is not known"})
YES = json.dumps({"answered": True, "reason": "it was founded in 1676"})
SCRIPT = [
    step("search", "Freya Lund captain", verifier=NO),
    step("search", "Ivers Quay founded", verifier=YES),
    step("answer", "1676"),
]


def test_a_question_is_answered_with_steps_and_sources(station: Station) -> None:
    station.start()
    asked = station.run("ask", QUESTION, "--engine", station.script(SCRIPT))
    answer, _, *rest = asked.stdout.splitlines()
    assert answer == "1676"
    assert rest[0].startswith("3 steps: houston steps ask-")
    assert rest[1] == "sources: Ivers Quay  corpus:doc-09", "what holds the answer"
    assert "step 1  search Freya Lund captain" in asked.stderr
    assert "verifier: not answered yet: the town is not known" in asked.stderr
    assert "verifier: answered: it was founded in 1676" in asked.stderr
    (rollout,) = [row[0] for row in station.query("SELECT id FROM rollouts")]
    shown = station.show(rollout)
    assert (shown["state"], shown["task"]) == ("finished", "ask")
    first, second, _ = station.steps(rollout)
    assert first["verification"] == {
        "answered": False,
        "reason": "the town is not known",
        "unreadable": "",
    }
    assert "[verifier: answered. it was founded in 1676" in second["observation"]
    printed = station.run("steps", rollout).stdout
    assert "verifier: not answered yet: the town is not known" in printed


def test_programs_get_one_object(station: Station) -> None:
    station.start()
    documents = station.folder / "documents"
    documents.mkdir()
    (documents / "venus.md").write_text(
        "# Venus\n\nThe surface of Venus has 464 degrees Celsius.\n"
    )
    script = [step("search", "Venus surface", verifier=NO), step("code", "464 + 273", verifier="?")]
    words = ("ask", "How hot?", "--corpus", str(documents), "--steps", "3")
    done = station.run(*words, "--engine", station.script(script), "--json")
    (report,) = map(json.loads, done.stdout.splitlines())
    assert not done.stderr
    assert report["answer"] == "737" and report["fallback"] is True, "the last finding"
    assert report["question"] == "How hot?" and report["reason"] == "budget: steps"
    assert [source["title"] for source in report["sources"]] == ["Venus"]
    assert [one["step"] for one in report["steps"]] == [1, 2, 3]
    assert report["verifier"] == {"asked": 1, "answered": 0, "unreadable": 0}
    (shown,) = station.json("rollout", "show", report["rollout"])
    assert shown["verifier"] == report["verifier"]
    assert "asked 1 time: 0 answered" in station.run("rollout", "show", report["rollout"]).stdout
    assert report["steps"][1]["verification"] is None, "its word could change nothing any more"
    assert report["steps"][2]["malformed"].startswith("the action must be one of: answer")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A station that runs, for who asks what cannot be asked."""
    made = Station(tmp_path_factory.mktemp("running"))
    made.start()
    yield made
    made.clear()


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (("ask", "  "), 2, "The question is empty."),
        (("ask", "x", "--corpus", "nowhere"), 66, "nowhere is neither a folder nor a .jsonl file."),
        (("ask", "x", "--steps", "0"), 2, "--steps"),
        (("ask", "x", "--web", "--corpus", "."), 2, "not allowed with"),
        (("ask", "x", "--engine", "nobody"), 66, "There is no engine 'nobody'"),
    ],
)
def test_what_cannot_be_asked_is_said(
    running: Station, words: tuple[str, ...], code: int, cause: str
) -> None:
    assert cause in running.run(*words, code=code).stderr


def test_without_a_daemon_or_an_answer_the_exit_code_says_so(station: Station) -> None:
    engine = station.script([{"thought": "", "calls": []}])
    assert "No daemon runs" in station.run("ask", "x", "--engine", engine, code=69).stderr
    station.start()
    nothing = station.run("ask", "x", "--engine", engine, "--steps", "1", code=1)
    assert "There is no answer: ask-" in nothing.stderr
    assert not nothing.stdout


def asking(station: Station, script: list[dict[str, object]]) -> subprocess.Popen[str]:
    """`houston ask` as a process of its own."""
    words = ["ask", "How hot?", "--engine", station.script(script)]
    return subprocess.Popen(
        [sys.executable, "-m", "houston_shared.command", *words],
        env=station.environment,
        cwd=station.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_guidance_reaches_a_question(station: Station) -> None:
    """The lines of README: whoever waits may still be guided."""
    station.start()
    script = [{**step("search", "Venus", verifier=YES), "delay": 3}, step("answer", "5")]
    process = asking(station, script)
    found = station.until(lambda: station.query("SELECT id FROM rollouts"), 60, "it is asked")
    rollout = found[0][0]
    station.run("guide", rollout, "In degrees Celsius, please.")
    answer, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and answer.splitlines()[0] == "5"
    assert [g["text"] for g in station.steps(rollout)[0]["guidance"]] == [
        "In degrees Celsius, please."
    ]


def test_a_question_goes_on_where_nobody_waits_any_more(station: Station) -> None:
    station.start()
    script = [{**step("search", "Venus", verifier=YES), "delay": 4}, step("answer", "5")]
    process = asking(station, script)
    assert process.stderr is not None
    rollout = process.stderr.readline().partition(":")[0]
    process.send_signal(signal.SIGINT)
    answer, said = process.communicate(timeout=60)
    assert process.returncode == 130 and not answer
    assert f"{rollout} is still running; to end it: houston rollout cancel {rollout}" in said
    assert station.ended(rollout)["state"] == "finished"


def test_memory_is_told_once_in_the_head_and_only_where_it_is_asked_for(station: Station) -> None:
    station.start()
    engine = station.script(SCRIPT)

    def asked(question: str, *words: str) -> tuple[str, str]:
        """The rollout, and the task as it was told."""
        report = station.json("ask", question, "--engine", engine, *words)[0]
        (context,) = station.json("context", report["rollout"], "3")
        tasks = [one["content"] for one in context["messages"] if one["role"] == "user"]
        assert "From earlier rollouts" not in "".join(tasks[1:])
        return report["rollout"], tasks[0]

    _, first = asked(QUESTION, "--memory")
    assert "From earlier rollouts" not in first, "there are none"
    assert "From earlier rollouts" not in asked(QUESTION)[1], "it is off unless asked for"
    _, again = asked("When was the birth town of the Morning Heron's captain founded?", "--memory")
    assert f"- asked: {QUESTION}" in again
    assert 'answered "1676"' in again and "Ivers Quay founded" in again
    assert again.count("- asked: ") == 1, "only what left something is recalled"
