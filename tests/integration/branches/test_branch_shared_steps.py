"""What happens to the past that a branch shares: it cannot be taken from under it unsaid."""

import sqlite3

from tests.support.station import Station


def test_a_shared_past_is_neither_erased_nor_damaged_in_silence(station: Station) -> None:
    steps = [
        {"thought": f"Step {n}.", "calls": [{"name": "noop", "arguments": {"text": str(n)}}]}
        for n in range(1, 7)
    ]
    slow = [*steps[:4], *({**step, "delay": 20} for step in steps[4:])]
    (station.folder / "task.toml").write_text(
        'name = "past"\ninstructions = "x"\nenvironment = "null"\n[budget]\nsteps = 9\n'
    )
    station.start()
    (parent,) = station.rollout(station.folder / "task.toml", station.script(steps))
    station.ended(parent)
    station.script(slow)
    (row,) = station.json("rollout", "branch", parent, "--at", "3")
    made = row["rollout"]
    station.until(lambda: station.closed(made) == 4, why="it has a step of its own")
    for words in (("archive", parent, "--yes"), ("erase", parent, "--at", "2", "--yes")):
        refused = station.run("rollout", *words, code=1)
        assert f"{made} is a branch that shares steps with {parent}" in refused.stderr
    station.stop()

    connection = sqlite3.connect(station.home / "houston.db")
    with connection:
        ((seq,),) = connection.execute(
            "SELECT seq FROM events WHERE rollout = ? AND step = 2 AND part = 'call.0'", (parent,)
        )
        connection.execute("UPDATE events SET body = x'00' || body WHERE seq = ?", (seq,))
    connection.close()
    station.start()
    station.until(lambda: station.state(made) == "paused")
    assert f"first bad seq={seq}" in station.show(made)["reason"]
    station.stop()
    station.run("repair")
    assert station.run("verify").stdout.startswith("Sound")

    station.start()
    station.run("rollout", "resume", made)
    station.until(lambda: "set aside by a repair" in station.show(made)["reason"])
    assert station.state(made) == "paused", "it has nothing to go on from"
    assert [one["step"] for one in station.steps(made)][-1] == 4, "what is there is still shown"
    station.run("rollout", "branch", made, "--at", "4", code=1)
    station.run("rollout", "cancel", made)
    assert station.ended(made)["state"] == "cancelled"
