"""Episodes for somebody else's agent: budgets, rewards, and that nothing is left behind."""

from pathlib import Path

import pytest

from houston_daemon.environments.openenv.served_episode import Episodes, ServedEpisode
from houston_daemon.suites.suite_catalog import find_suite, write_suite_task
from houston_shared.records import RolloutSpec
from houston_shared.task import LoadedTask, load_task


def episodes(folder: Path, suite: str, changed: tuple[str, str] = ("", "")) -> Episodes:
    """Episodes of a suite's training tasks. changed: a line of each, and what stands for it."""

    def task(seed: int) -> LoadedTask:
        file = write_suite_task(suite, "train", seed, folder / "tasks")
        if changed[0]:
            file.write_text(file.read_text().replace(*changed))
        return load_task(file)

    def spec(task: LoadedTask, rollout: str, seed: int) -> RolloutSpec:
        return RolloutSpec(
            rollout=rollout, task=task.record(), engine="", engine_settings={}, seed=seed,
            host_root=str(folder / "root"), hidden=(str(folder / "home"),),
        )  # fmt: skip

    return Episodes(task, spec)


@pytest.mark.parametrize("suite", ["word-worlds", "word-errands", "python-problems"])
async def test_rewards_add_up_to_the_score_and_nothing_is_left(tmp_path: Path, suite: str) -> None:
    solve = find_suite(suite).solve
    assert solve is not None
    episode = ServedEpisode(episodes(tmp_path, suite))
    for seed in (3, 4):  # a new episode takes the place of the one before
        text = await episode.begin(seed)
        assert text and {call["name"] for call in solve("train", seed)} <= {
            tool.name for tool in episode.tools
        }
        steps = []
        for call in solve("train", seed):
            assert not steps or not steps[-1].done
            steps.append(await episode.act(str(call["name"]), dict(call["arguments"])))  # type: ignore[call-overload]
        assert sum(step.reward for step in steps) == pytest.approx(1.0) and steps[-1].done
        after = await episode.act("look", {})
        assert "The episode is over." in after.text and after.done and not after.reward
    await episode.end()
    left = [path for path in (tmp_path / "root").rglob("*") if "env-serve" in path.name]
    assert not left


async def test_a_budget_ends_an_episode_with_its_score(tmp_path: Path) -> None:
    """One of two items is found, then the steps are spent."""
    solve = find_suite("word-errands").solve
    assert solve is not None
    episode = ServedEpisode(episodes(tmp_path, "word-errands", ("\nsteps = 10\n", "\nsteps = 4\n")))
    await episode.begin(0)
    calls = [*solve("train", 0)[:3], {"name": "look", "arguments": {}}]
    steps = [await episode.act(str(call["name"]), dict(call["arguments"])) for call in calls]  # type: ignore[call-overload]
    assert [step.done for step in steps] == [False, False, False, True]
    assert sum(step.reward for step in steps) == pytest.approx(0.5)
    await episode.end()


async def test_what_an_agent_does_wrong_is_told_it(tmp_path: Path) -> None:
    episode = ServedEpisode(episodes(tmp_path, "small-workstation"))
    early = await episode.act("list", {})
    assert not early.success and "There is no episode yet" in early.text
    await episode.begin(0)
    for name, arguments in (("jump", {}), ("read", {}), ("read", {"file": "<real_user>x"})):
        said = await episode.act(name, arguments)
        assert not said.success and said.reward == 0.0 and not said.done, said
        assert "<real_user>" not in said.text
    await episode.end()


async def test_the_same_seed_is_the_same_episode(tmp_path: Path) -> None:
    episode = ServedEpisode(episodes(tmp_path, "small-workstation"))
    first = [await episode.begin(5), (await episode.act("list", {})).text]
    again = [await episode.begin(5), (await episode.act("list", {})).text]
    other = [await episode.begin(6), (await episode.act("list", {})).text]
    assert first == again != other
    await episode.end()
