"""What people said, as what a critic learns from: gains, weights, losses, and the command."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.suites.suite_catalog import write_suite_task
from houston_daemon.suites.tiny_policy import TinyRecipe, make_tiny_policy
from houston_daemon.suites.word_worlds import LEVELS, word_world
from houston_daemon.training.critic import critic_run
from houston_daemon.training.critic.create_critic_run import RowMaker, message_weights
from houston_daemon.training.critic.critic_recipe import CriticRecipe, CriticRow
from houston_daemon.training.critic.people_examples import (
    PeopleExample,
    gain_of_words,
    read_people_examples,
)
from houston_shared.control_client import send_with_retry
from houston_shared.control_messages import RejectDraft, StoreDraft
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.event_bodies import DraftDecided, DraftWritten
from houston_shared.store.store_reader import Reader
from houston_shared.wire import Guide
from tests.support.station import Station
from tests.support.tensorboard_events import TENSORBOARD, read_scalars
from tests.support.written_home import WrittenHome
from tests.training.sft import tiny

LN = math.log
REWARDS = {1: 0.2, 2: 0.4, 3: 0.9, 4: 0.7}
GAINS: dict[str, tuple[float | None, float | None, dict[int, float], float | None]] = {
    "the score rose": (50.0, 100.0, {}, LN(0.6 / 0.1)),
    "it fell": (50.0, 0.0, {}, LN(0.6 / 1.1)),
    "nothing was scored before": (None, 50.0, {}, LN(1.1 / 0.6)),
    "nothing since: process rewards": (50.0, None, REWARDS, LN((1.1 - 0.3) / (1.1 - 0.8))),
    "a score counts more than process rewards": (0.0, 0.0, REWARDS, 0.0),
    "process rewards on one side only": (None, None, {1: 0.5}, None),
    "nothing is known": (None, None, {}, None),
}


@pytest.mark.parametrize("name", GAINS)
def test_what_words_gained(name: str) -> None:
    before, after, rewards, wanted = GAINS[name]
    found = gain_of_words(before, after, rewards, heard=2)
    assert found == (None if wanted is None else pytest.approx(wanted))


def example(gain: float | None) -> PeopleExample:
    return PeopleExample("r", None, "words", "ada", "", gain)  # type: ignore[arg-type]


def test_words_weigh_by_what_they_gained() -> None:
    recipe = CriticRecipe(gain_temperature=0.5, most_weight=4.0)
    weights = message_weights([example(each) for each in (0.0, 0.5, None, 4.0)], recipe)
    mean = 1.5
    assert weights == pytest.approx([math.exp(-mean / 0.5), math.exp(-1.0 / 0.5), 1.0, 4.0])
    assert message_weights([example(None)], recipe) == [1.0]
    sharp = CriticRecipe(gain_temperature=0.003, most_weight=4.0)
    weights = message_weights([example(each) for each in (2.398, -2.398)], sharp)
    assert weights == pytest.approx([4.0, 0.0])


TURNED_DOWN: dict[str, tuple[list[tuple[str, int, str]], list[tuple[str, str]]]] = {
    "said rather": ([("draft", 2, "a"), ("say", 3, "use b")], [("a", "use b")]),
    "long after": ([("draft", 2, "a"), ("say", 11, "of other steps")], []),
    "after the next draft": (
        [("draft", 2, "a"), ("draft", 3, "b"), ("say", 4, "c")], [("b", "c")]),
    "each its own": (
        [("draft", 2, "a"), ("say", 3, "b"), ("draft", 4, "c"), ("say", 5, "d")],
        [("a", "b"), ("c", "d")]),
    "before": ([("say", 1, "b"), ("draft", 2, "a")], []),
}  # fmt: skip
"""Drafts, each turned down, and words, with their steps; and which pairs they make."""


@pytest.mark.parametrize("name", TURNED_DOWN)
def test_what_is_preferred_to_a_draft_was_said_instead_of_it(name: str, tmp_path: Path) -> None:
    happened, wanted = TURNED_DOWN[name]
    written = WrittenHome(tmp_path / "home")
    written.rollout("r")
    for step in range(1, 13):
        written.step("r", step)
    for number, (what, step, text) in enumerate(happened):
        if what == "say":
            written.guide("r", f"g{number}", text)
            written.deliver("r", step, f"g{number}")
        else:
            draft = DraftWritten(id=f"d{number}", critic="c", text=text)
            written.event(EventKey("r", step), "draft", draft)
            decided = DraftDecided(id=f"d{number}", decision="rejected", by="ada")
            written.event(EventKey("r"), "draft-decision", decided)
    written.close()
    with Reader(written.home) as reader:
        found = read_people_examples(reader, ["r"])
    assert [(pair.drafted, pair.preferred) for pair in found.pairs] == wanted
    drafts = sum(what == "draft" for what, _, _ in happened)
    assert found.unpaired == drafts - len(wanted)


class Net(torch.nn.Module):
    """Says of every token the same, by what it learned."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor([0.0, 1.0, -1.0, 0.5]))
        self.device = torch.device("cpu")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        class Out:
            logits = self.logits.expand(*input_ids.shape, 4)

        return Out()


class ForgetfulNet(Net):
    """Has no numbers for what comes before the last token of the first prompt."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        out = super().forward(input_ids, attention_mask)
        out.logits = out.logits.clone()
        out.logits[:, :1] = math.nan
        return out


def test_only_the_answers_are_computed() -> None:
    """Log-probabilities of the prompt's tokens would take more memory than all else."""
    pairs = [([1, 2], [3, 1]), ([1, 0, 2], [])]
    found = critic_run.answer_logprobs(ForgetfulNet(), pairs, 0)
    assert found.tolist() == critic_run.answer_logprobs(Net(), pairs, 0).tolist()
    assert found[1] == 0.0


@pytest.mark.parametrize(("configured", "window"), [(0, 512), (128, 128)])
def test_rows_are_as_long_as_what_the_critic_will_be_given(
    tmp_path: Path, configured: int, window: int
) -> None:
    base = tiny.save_model(tmp_path / "base")
    settings = EngineSettings(kind="vllm", window=configured)
    assert RowMaker(CriticRecipe(base=str(base)), settings).window == window


ROWS = [
    CriticRow(rollout="r", prompt=[1, 2], answer=[3, 1], weight=2.0),
    CriticRow(rollout="r", prompt=[1], answer=[2], weight=0.5),
    CriticRow(rollout="r", prompt=[1, 2, 3], answer=[1, 1, 1], rejected=[2, 0]),
]


def trainer(reference: list[critic_run.Pair]) -> critic_run.CriticTrainer:
    made = object.__new__(critic_run.CriticTrainer)
    made.set_rows(ROWS, reference, CriticRecipe(preference_beta=0.2, preference_weight=3.0), 0)
    return made


def test_the_loss_is_what_both_papers_say() -> None:
    """By hand: weighted likelihood a token, and minus the log of a sigmoid of the margin."""
    net = Net()
    logp = torch.tensor([0.0, 1.0, -1.0, 0.5]).log_softmax(-1).tolist()
    begun = critic_run.reference_logprobs(net, ROWS, 0)
    assert begun[2] == pytest.approx((3 * logp[1], logp[2] + logp[0]))
    assert begun[0] == (0.0, 0.0)
    messages = -(2.0 * (logp[3] + logp[1]) / 2 + 0.5 * logp[2])
    same = trainer(begun).compute_loss(net, [0, 1, 2])
    assert same.item() == pytest.approx((messages + 3.0 * LN(2)) / 3)
    farther = [(said - 1.0, rejected) for said, rejected in begun]
    moved = trainer(farther).compute_loss(net, [2])
    assert moved.item() == pytest.approx(3.0 * -LN(1 / (1 + math.exp(-0.2))))
    moved.backward()  # type: ignore[no-untyped-call]
    assert net.logits.grad is not None and net.logits.grad.abs().sum() > 0
    assert critic_run.preferred_share(ROWS, begun) == 1.0
    assert critic_run.preferred_share(ROWS[:2], begun[:2]) is None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    recipe = TinyRecipe(parameters=300_000, level="errands", traces=300, epochs=3, worlds=16)
    with contextlib.suppress(HoustonError):  # how much it solves is nothing to these tests
        make_tiny_policy(folder, recipe, lambda line: None)
    return folder


@pytest.fixture
def home(station: Station, model: Path) -> Station:
    station.home.mkdir(parents=True, exist_ok=True)
    (station.home / "houston.toml").write_text(
        f'[engines.tiny]\nkind = "embedded"\nmodel = "{model}"\ndialect = "words"\n'
        '[review]\ncritic_engine = "tiny"\n'
    )
    station.start()
    return station


def guided(station: Station, index: int) -> str:
    """A rollout that goes wrong, is told a box, and finds one item."""
    world = word_world(LEVELS["errands"], "train", index)
    item, box = next(iter(world.wanted.items()))
    wrong = next(each for each in world.codes if each not in world.wanted.values())

    def visit(where: str, delay: float) -> list[dict[str, Any]]:
        code = " ".join(world.codes[where])
        calls = [("open", {"box": where}), ("read", {}), ("enter", {"code": code})]
        return [
            {"thought": "", "calls": [{"name": name, "arguments": arguments}], "delay": wait}
            for (name, arguments), wait in zip(calls, (delay, 0, 0), strict=True)
        ]

    script = station.script([*visit(wrong, 0), *visit(box, 30)], f"s{index}")
    task = write_suite_task("word-errands", "train", index, station.folder / "suite")
    (rollout,) = station.rollout(task, script)
    station.until(lambda: station.closed(rollout) == 3, 60, "it went wrong")
    # At once and in this process: it must be said before the next step is sampled.
    for message in (
        Guide(id=f"g{index}", rollout=rollout, text=f"{item} {box}"),
        StoreDraft(id=f"d{index}", rollout=rollout, step=3, critic="tiny", text="try again"),
        RejectDraft(id=f"d{index}"),
    ):
        send_with_retry(Home(station.home), message, "", "")
    return rollout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_critic_learns_what_people_said(home: Station) -> None:
    refused = home.run("train", "echo", "--human", "--engine", "tiny", code=1)
    assert "No person said anything" in refused.stderr
    rollouts = [guided(home, index) for index in range(2)]
    for rollout in rollouts:
        assert home.ended(rollout)["final_score"] == 50.0
    words = ("train", "echo", "--human", "--engine", "tiny", "--name", "taught")
    settings = ("--set", "epochs=3", "--set", "learning_rate=2e-3", *TENSORBOARD)
    told = home.run(*words, *settings, "--json")
    assert "2 messages of people, 2 with a known gain" in told.stderr
    assert "2 drafts turned down without other words" in told.stderr
    run = json.loads(told.stdout.splitlines()[-1])
    assert (run["state"], run["policy"]) == ("finished", "taught@2")
    assert (run["result"]["messages"], run["result"]["pairs"]) == (2, 0)
    assert run["result"]["loss_last"] < run["result"]["loss_first"]
    tracked = read_scalars(Path(run["folder"]))["train/loss"].values()
    assert list(tracked)[-1] == pytest.approx(run["result"]["loss_last"], abs=1e-4)
    rows = [json.loads(line) for line in Path(run["folder"], "rows.jsonl").read_text().splitlines()]
    assert [row["gain"] for row in rows] == [pytest.approx(LN(1.1 / 0.6))] * 2
    report = home.run("critique", rollouts[0], "--policy", "taught@2", "--json", code=None)
    assert json.loads(report.stdout)["rollout"] == rollouts[0]
    wrong = home.run("train", "echo", "--human", "--suite", "word-errands", code=2)
    assert "it takes no --suite" in wrong.stderr
