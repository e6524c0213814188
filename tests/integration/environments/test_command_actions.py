"""The twelve command actions on real terminals: what works, and what says why it did not."""

import asyncio
import os
import time

import pytest

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.workstation import command_actions
from houston_shared.task import BudgetSettings
from tests.integration.environments.conftest import MakeStation, Station


async def test_a_command_that_succeeds_and_one_that_fails(station: Station) -> None:
    good = await station("run_command", command="cat notes.txt; pwd")
    assert (good.kind, good.success, good.fields["exit_code"]) == ("command", True, 0)
    assert "first\nsecond\nthird\n/workspace" in good.text
    bad = await station("run_command", command="exit_code() { return 3; }; exit_code")
    assert (bad.kind, bad.success, bad.fields["exit_code"]) == ("command", False, 3)
    assert bad.fields["error"] == "exit code 3"
    silent = await station("run_command", command="true")
    assert "(no output)" in silent.text


async def test_a_session_keeps_its_folder_and_variables(station: Station) -> None:
    await station("run_command", command="mkdir d; cd d; X=7")
    assert "/workspace/d 7" in (await station("run_command", command="echo $PWD $X")).text
    other = await station("run_command", command="echo $PWD.$X", session_id="other")
    assert "/workspace." in other.text


async def test_a_long_command_is_left_running_and_can_be_looked_at(
    make_station: MakeStation,
) -> None:
    station = await make_station(budget=BudgetSettings(command_seconds=0.5))
    running = await station("run_command", command="echo begun; sleep 1.2; echo done")
    assert (running.fields["running"], running.fields["ended_by"]) == (True, "limit")
    assert running.fields["exit_code"] is None
    assert "begun" in running.text
    assert "get_session_output" in running.text
    busy = await station("run_command", command="echo second")
    assert (busy.kind, busy.success) == ("error", False)
    assert "echo begun; sleep 1.2" in busy.text
    await station("sleep", sleep_time=2)
    assert not (await station("get_session_status")).fields["running"]
    output = await station("get_session_output")
    assert "done" in output.text
    assert "second" not in output.text


async def test_without_waiting_a_command_runs_aside(station: Station) -> None:
    started = await station(
        "run_command", command="sleep 60", session_id="job", wait_for_completion=False
    )
    assert (started.fields["running"], started.fields["ended_by"]) == (True, "asked")
    assert started.fields["async_execution"]
    assert (await station("run_command", command="echo free")).success


@pytest.mark.parametrize("reason", ["wake", "interrupt"])
async def test_a_persons_word_ends_the_waiting_and_not_the_command(
    station: Station, reason: str
) -> None:
    stop = Stop()

    async def speak() -> None:
        await asyncio.sleep(0.3)
        stop.reason = reason  # type: ignore[assignment]
        stop.event.set()

    speaking = asyncio.create_task(speak())
    result = await station("run_command", command="sleep 15; echo over", stop=stop)
    await speaking
    assert (result.fields["running"], result.fields["ended_by"]) == (True, reason)
    assert "person" in result.text
    assert (await station("get_session_status")).fields["running"]


async def test_input_answers_a_prompt(station: Station) -> None:
    ask = "read -p 'name? ' name; echo hello $name"
    await station("run_command", command=ask, wait_for_completion=False)
    answered = await station("input_in_session", input_text="Ada Lovelace")
    assert answered.success
    assert "hello Ada Lovelace" in answered.text
    assert answered.fields["exit_code"] == 0


async def test_a_clock_that_was_set_back_keeps_no_prompt_from_its_answer(station: Station) -> None:
    ask = "read -p 'name? ' name; read -p 'age? ' age; echo $name $age"
    await station("run_command", command=ask, wait_for_completion=False)
    assert "age? " in (await station("input_in_session", input_text="Ada")).text
    (log,) = station.folder.glob("root/rollouts/*/terminals/main/log.*")
    ahead = time.time() + 3_600
    os.utime(log, (ahead, ahead))
    answered = await station("input_in_session", input_text="36")
    assert answered.success, answered.text
    assert "Ada 36" in answered.text


async def test_a_clock_that_is_ahead_lets_no_input_into_what_prints(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another host is; here ours is behind."""
    loop = "while sleep 0.1; do echo working; done"
    await station("run_command", command=loop, wait_for_completion=False)
    real = time.time
    monkeypatch.setattr(command_actions.time, "time", lambda: real() - 60)
    refused = await station("input_in_session", input_text="36")
    assert "still printing" in refused.text


async def test_input_is_refused_where_nothing_asks(station: Station) -> None:
    nowhere = await station("input_in_session", input_text="x")
    assert "no session main" in nowhere.text
    await station("run_command", command="true")
    idle = await station("input_in_session", input_text="ls")
    assert (idle.success, "Nothing runs" in idle.text) == (False, True)
    noisy = "while true; do echo noise; sleep 0.05; done"
    await station("run_command", command=noisy, wait_for_completion=False)
    refused = await station("input_in_session", input_text="x")
    assert (refused.success, "still printing" in refused.text) == (False, True)


async def test_sessions_are_opened_listed_and_closed(station: Station) -> None:
    assert "No sessions" in (await station("list_sessions")).text
    assert (await station("create_session", session_id="a")).fields["change"] == "created"
    assert (await station("create_session", session_id="a")).fields["change"] == "found"
    await station("run_command", command="false", session_id="b")
    listed = await station("list_sessions")
    states = {one["session_id"]: one["exit_code"] for one in listed.fields["sessions"]}
    assert states == {"a": None, "b": 1}
    assert (await station("close_session", session_id="a")).success
    gone = await station("close_session", session_id="a")
    assert (gone.success, "no session a" in gone.text) == (False, True)
    everything = await station("close_all_sessions")
    assert everything.fields["closed"] == ["b"]
    assert (await station("close_all_sessions")).success
    assert (await station("list_sessions")).fields["sessions"] == []


async def test_output_is_counted_back_from_the_newest(station: Station) -> None:
    await station("run_command", command="seq 1 200")
    last = await station("get_session_output", start_lines=3)
    assert last.text.endswith("198\n199\n200")
    assert "earlier output exists" in last.text
    middle = await station("get_session_output", start_lines=6, end_lines=3)
    assert middle.text.endswith("195\n196\n197")
    empty = await station("get_session_output", start_lines=2, end_lines=5)
    assert "(no output)" in empty.text
    none_left = await station("get_session_output", start_lines=10, end_lines=15)
    assert "(no output)" in none_left.text, "the newest 15 were to be left out"
    missing = await station("get_session_output", session_id="none")
    assert not missing.success


async def test_output_since_a_time(station: Station) -> None:
    await station("run_command", command="echo early")
    await asyncio.sleep(1.1)
    now = int(time.time())
    await asyncio.sleep(1.0)
    await station("run_command", command="echo late")
    since = await station("get_session_output", since_timestamp=now)
    assert "late" in since.text
    assert "early" not in since.text
    for _ in range(10):  # a second may go by before it is asked for
        await station("run_command", command="echo later")
        recent = await station("get_session_recent_output", seconds=1)
        if "later" in recent.text:
            break
    assert "later" in recent.text
    assert "early" not in recent.text
    everything = await station("get_session_recent_output", seconds=3_600)
    assert "early" in everything.text


async def test_cleared_output_stays_hidden_after_a_restart(station: Station) -> None:
    await station("run_command", command="echo before")
    assert (await station("clear_session_buffer")).fields["change"] == "cleared"
    await station("run_command", command="echo after")
    await station.again()
    shown = await station("get_session_output")
    assert "after" in shown.text
    assert "before" not in shown.text
    assert not (await station("clear_session_buffer", session_id="none")).success


async def test_status_and_idle(station: Station) -> None:
    assert not (await station("get_session_status")).success
    assert not (await station("check_session_idle")).success
    await station("run_command", command="echo x")
    status = await station("get_session_status")
    assert (status.fields["is_alive"], status.fields["running"]) == (True, False)
    assert (await station("check_session_idle")).fields["is_idle"]
    await station("run_command", command="sleep 60", wait_for_completion=False)
    busy = await station("check_session_idle")
    assert (busy.fields["is_idle"], busy.fields["command"]) == (False, "sleep 60")


@pytest.mark.parametrize(("force", "used"), [(False, "SIGTERM"), (True, "SIGKILL")])
async def test_kill_ends_the_command_and_keeps_the_session(
    station: Station, force: bool, used: str
) -> None:
    await station("run_command", command="X=7; sleep 60", wait_for_completion=False)
    killed = await station("kill_session_processes", force=force)
    assert (killed.fields["signal_used"], killed.fields["running"]) == (used, False)
    assert killed.fields["killed_processes"] == ["sleep"]
    assert "7" in (await station("run_command", command="echo $X")).text
    again = await station("kill_session_processes", force=force)
    assert again.fields["killed_processes"] == [] and "no signal was sent" in again.text
    await station("run_command", command="while :; do :; done", wait_for_completion=False)
    loop = await station("kill_session_processes", force=force)
    assert "the shell itself, which was interrupted" in loop.text and not loop.fields["running"]
    assert not (await station("kill_session_processes", session_id="none")).success


async def test_a_shell_that_ended_is_told_and_replaced(station: Station) -> None:
    beat = "while sleep 0.05; do echo x >> beats; done"
    leaves = f"nohup setsid bash -c '{beat}' >/dev/null 2>&1 & exit 4"
    ended = await station("run_command", command=leaves)
    assert not ended.success
    assert "ends what the old one left running, so use another session_id" in ended.text
    beats = station.workspace / "beats"
    assert (await station("run_command", session_id="other", command="echo back")).success
    heard = beats.stat().st_size if beats.exists() else 0
    async with asyncio.timeout(30):  # a job goes on without the shell that started it
        while not (beats.exists() and beats.stat().st_size > heard):  # noqa: ASYNC110 a file
            await asyncio.sleep(0.05)
    back = await station("run_command", command="echo back")
    assert back.success and "what it had left was ended" in back.text
    heard = beats.stat().st_size
    await asyncio.sleep(0.3)
    assert beats.stat().st_size == heard


async def test_a_wrong_call_is_an_observation(station: Station) -> None:
    result = await station("run_command", command="ls", http_port=1)
    assert (result.kind, result.success) == ("error", False)
    assert "no argument `http_port`" in result.text


async def test_the_sandbox_hides_home_and_solutions(station: Station) -> None:
    look = f"cat {station.folder}/home/houston.db {station.folder}/task/evaluate.py"
    assert "No such file" in (await station("run_command", command=look)).text


async def test_a_cancelled_wait_leaves_the_command_running(station: Station) -> None:
    """Draining and cancelling reach a call as cancellation of its task."""
    running = asyncio.create_task(station("run_command", command="sleep 60"))
    await station_is_busy(station)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (await station("get_session_status")).fields["running"]


async def station_is_busy(station: Station) -> None:
    """Wait until the first command runs."""
    async with asyncio.timeout(20):
        while True:
            status = await station("get_session_status")
            if status.fields.get("running"):
                return
            await asyncio.sleep(0.05)


async def test_without_a_sandbox_the_same_actions_work(make_station: MakeStation) -> None:
    station = await make_station("print('{\"overall_score\": 7}')", sandbox="none")
    shown = await station("run_command", command="pwd; cat notes.txt")
    assert f"{station.workspace}\nfirst" in shown.text
    opened = await station("open_file", path=f"{station.workspace}/notes.txt")
    assert "2 second" in opened.text
    assert (await station("eval")).fields["overall_score"] == 7
