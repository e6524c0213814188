"""Rows of a run for verl and slime: exactly the rows, masks and advantages that the run trains."""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from huggingface_hub import DatasetCard

from houston_daemon.training.credit.credited_rows import CreditedRow, SpanCredit
from houston_daemon.training.credit.policy_gradient_rows import (
    PolicyGradientRow,
    policy_gradient_row,
)
from houston_daemon.training.export.export_format import ExportLine
from houston_daemon.training.export.export_run import FORMATS, ExportRequest, write_export
from houston_daemon.training.loaders import slime_rows, verl_rows
from houston_daemon.training.rl.group_credit import credit_rows
from houston_daemon.training.rl.read_run_credits import read_run_credits
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, RlRunSpec
from houston_daemon.training.rl.rollout_groups import GroupFolder, RolloutGroup
from houston_daemon.training.rows.row_builder import build_token_rows
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import training_folder
from houston_shared.store.store_reader import Reader
from tests.integration.agent.rig import Rig
from tests.support.run_rows import credit, run_row
from tests.support.synthetic_rows import made
from tests.training.export.conftest import turns
from tests.training.export.writing import lines
from tests.training.rows.played_rollouts import Stage, Turn, families

RL = ("verl-rl", "slime-rl")
Change = Callable[[ExportLine], Any]


def test_a_verl_line_begins_and_ends_with_what_is_trained() -> None:
    (line,) = FORMATS["verl-rl"].lines(run_row(made()))
    assert line["prompts"] == list(range(100, 107))
    assert line["responses"] == list(range(107, 128))
    assert line["response_mask"] == [1] * 5 + [0] * 10 + [1] * 6
    assert line["advantages"] == [0.75 * trained for trained in line["response_mask"]]
    assert line["returns"] == [1.0 * trained for trained in line["response_mask"]]
    assert line["rollout_log_probs"] == [-0.5 * trained for trained in line["response_mask"]]
    assert (line["uid"], line["update"], line["reward"]) == ("2.0-train-7", 2, 1.0)
    assert (line["tokens"], line["trained"], line["policies"]) == (28, 11, "policy@1")


def test_a_slime_line_is_one_of_its_samples() -> None:
    (line,) = FORMATS["slime-rl"].lines(run_row(made(), credit()))
    assert line["tokens"] == list(range(100, 128))
    assert line["response_length"] == len(line["loss_mask"]) == len(line["rollout_log_probs"]) == 21
    assert line["loss_mask"] == [1] * 5 + [0] * 10 + [1] * 6
    assert (line["reward"], line["status"]) == (1.0, "completed")
    assert (line["group_index"], line["rollout_id"]) == (1, 3)
    assert line["metadata"]["advantages"] == [0.75]


@pytest.mark.parametrize("name", RL)
def test_rows_without_anything_to_train_have_no_line(name: str) -> None:
    assert FORMATS[name].lines(run_row(made(((4, 0.0),)))) == []


@pytest.mark.parametrize("name", RL)
def test_a_trained_token_without_the_probability_of_its_draw_is_refused(name: str) -> None:
    """A consumer would read 0.0, which is a token that was certain."""
    row = made()
    for unknown in (
        replace(row, logprobs={0: row.logprobs[0]}),
        replace(row, spans=tuple(replace(s, logprob_kind="after_grammar") for s in row.spans)),
        replace(row, spans=tuple(replace(span, guided=True) for span in row.spans)),
    ):
        (line,) = FORMATS[name].lines(run_row(unknown))
        assert "is not known" in FORMATS[name].line_problem(line)
    masked = replace(row, logprobs={0: row.logprobs[0], 2: row.logprobs[2]})
    (line,) = FORMATS[name].lines(run_row(masked))
    assert FORMATS[name].line_problem(line) == "", "what is not trained needs none"


def test_slime_has_one_advantage_a_sample_and_verl_one_a_token() -> None:
    credits = (SpanCredit(0.0, 1.0, 0.5), SpanCredit(0.0, 1.0, 0.1), SpanCredit(1.0, 1.0, -0.5))
    row = run_row(made())._replace(credited=CreditedRow(made(), credits))
    (line,) = FORMATS["slime-rl"].lines(row)
    assert "different advantages" in FORMATS["slime-rl"].line_problem(line)
    (line,) = FORMATS["verl-rl"].lines(row)
    assert FORMATS["verl-rl"].line_problem(line) == ""
    assert line["advantages"] == [0.5] * 5 + [0.0] * 10 + [-0.5] * 6


def put(name: str, value: Any) -> Change:
    return lambda line: line.update({name: value})


WRONG: list[tuple[str, str, Change, str]] = [
    ("verl-rl", "a short mask", lambda line: line["response_mask"].pop(), "lengths"),
    ("verl-rl", "a mask of two", lambda line: line["response_mask"].__setitem__(0, 2), "neither"),
    ("verl-rl", "nothing to train", put("response_mask", [0] * 21), "nothing in it"),
    ("verl-rl", "no prompt", put("prompts", []), "no prompt"),
    ("verl-rl", "no reward", put("reward", float("nan")), "no number"),
    ("verl-rl", "another count", put("trained", 1), "counts"),
    ("slime-rl", "a short mask", lambda line: line["loss_mask"].pop(), "lengths"),
    ("slime-rl", "no prompt", put("tokens", [1] * 21), "no prompt"),
    ("slime-rl", "no reward", put("reward", float("inf")), "no number"),
]


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [(name, change, why) for name, _, change, why in WRONG],
    ids=[f"{name}: {what}" for name, what, _, _ in WRONG],
)
def test_what_would_be_trained_otherwise_is_stopped(name: str, change: Change, why: str) -> None:
    (line,) = FORMATS[name].lines(run_row(made()))
    assert FORMATS[name].line_problem(line) == ""
    change(line)
    assert why in FORMATS[name].line_problem(line)


class Ran(NamedTuple):
    """A home with a run: two groups of which one is kept, one alike, one at work."""

    home: Home
    kept: tuple[str, ...]
    long: str
    """One of them that forked, so that it has several rows."""
    gapped: str
    """A rollout of no group, of which a repair set a step aside."""


def score(rig: Rig, rollout: str, value: float) -> None:
    with sqlite3.connect(rig.home.path / "houston.db", timeout=30) as database:
        database.execute("UPDATE rollouts SET last_score = ? WHERE id = ?", (value, rollout))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    rig = Rig(tmp_path_factory.mktemp("run"))
    stage = Stage(rig)
    family = families(tmp_path_factory.mktemp("tokenizer"))["chatml"]
    plain = "temperature = 1.0\nguided = false"
    long = stage.play(family, turns(8), context=1_000, sampling=plain).id
    short = stage.play(family, turns(2), sampling=plain).id
    cut = stage.play(family, [*turns(1), Turn("T2t long", (), "cut")], sampling=plain).id
    alike = [stage.play(family, turns(1), sampling=plain).id for _ in range(2)]
    gapped = stage.play(family, turns(2), sampling=plain).id
    with sqlite3.connect(rig.home.path / "houston.db", timeout=30) as database:
        database.execute("DELETE FROM steps WHERE rollout = ? AND step = 1", (gapped,))
    waiting = rig.rollout(
        settings={"kind": "token", "url": "http://nobody", "tokenizer": family.tokenizer,
                  "dialect": family.name},
        task="", name="waiting", files={"README.md": "w"},
    )  # fmt: skip
    score(rig, long, 100.0)
    folder = RlRunFolder(training_folder(rig.home) / "dapo-1")
    folder.write_spec(
        RlRunSpec(run="dapo-1", name="policy", parent="", home=str(rig.home.path),
                  recipe=RlRecipe(suite="word-worlds"), base_hash="", active_before="")
    )  # fmt: skip
    groups = GroupFolder(folder.path / "groups")
    members = [(0, 4, (long, short, cut)), (0, 9, tuple(alike)), (1, 2, (waiting,))]
    for update, index, rollouts in members:
        groups.keep(
            RolloutGroup(update=update, batch=0, split="train", index=index, policy="base",
                         rollouts=rollouts)
        )  # fmt: skip
    groups.keep(
        RolloutGroup(update=0, batch=0, split="validation", index=0, policy="base",
                     rollouts=(short,))
    )  # fmt: skip
    yield Ran(rig.home, (long, short, cut), long, gapped)
    rig.close()


def exported(ran: Ran, name: str, folder: Path, parquet: bool = False) -> Any:
    credits, options, facts = read_run_credits(ran.home, "dapo-1")
    rollouts = tuple(credit.rollout for credit in credits)
    request = ExportRequest(
        rollouts, name, rows=options, rules="stored", credits=credits, run=facts,
        parquet=parquet,
    )  # fmt: skip
    return write_export(ran.home, request, folder)


def trained_rows(ran: Ran) -> dict[str, PolicyGradientRow]:
    """What the trainer of the run makes of the same groups."""
    credits, options, _ = read_run_credits(ran.home, "dapo-1")
    with Reader(ran.home) as reader:
        rows = [
            policy_gradient_row(row)
            for each in credits
            for row in credit_rows(list(build_token_rows(reader, each.rollout, options)), each)
        ]
    return {row.id: row for row in rows if row is not None}


@pytest.mark.parametrize("name", ["dapo-1", "po-1"])
def test_only_groups_that_ended_and_differ_are_exported(
    ran: Ran, tmp_path: Path, name: str
) -> None:
    credits, _, facts = read_run_credits(ran.home, name)
    assert facts["run"] == "dapo-1"
    assert tuple(credit.rollout for credit in credits) == ran.kept
    assert [credit.reward for credit in credits] == [1.0, -1.0, -1.0]
    assert sum(credit.advantage for credit in credits) == pytest.approx(0.0, abs=1e-6)
    assert facts["dropped"] == {"have not ended": 1, "have rewards that are all alike": 1}
    manifest = exported(ran, "verl-rl", tmp_path).manifest
    assert (manifest.run["run"], manifest.run["groups"]) == ("dapo-1", 1)
    assert manifest.counts.trained == sum(row.trained for row in trained_rows(ran).values())


def test_a_group_whose_decisions_are_not_scored_yet_is_left_out(ran: Ran) -> None:
    """The trainer scores a batch when it has all of it; the run may be read before."""
    first = RlRunFolder(training_folder(ran.home) / "dapo-1")
    folder = RlRunFolder(training_folder(ran.home) / "dapo-3")
    recipe = msgspec.structs.replace(first.spec.recipe, process_reward="prm@2", process_weight=0.5)
    folder.write_spec(msgspec.structs.replace(first.spec, run="dapo-3", recipe=recipe))
    groups = GroupFolder(folder.path / "groups")
    kept, *_ = [group for group in GroupFolder(first.path / "groups").all()
                if group.rollouts == ran.kept]  # fmt: skip
    for batch in (0, 1):
        groups.keep(msgspec.structs.replace(kept, batch=batch))
    folder.process_rewards.mkdir()
    scores: list[dict[int, float]] = [{1: 0.5} for _ in ran.kept]
    file = folder.process_rewards / f"{msgspec.structs.replace(kept, batch=0).name}.json"
    file.write_bytes(msgspec.json.encode(scores))
    credits, _, facts = read_run_credits(ran.home, "dapo-3")
    assert {credit.group for credit in credits} == {file.stem}
    assert facts["dropped"] == {"have decisions that were not scored": 1}
    file.unlink()
    with pytest.raises(HoustonError, match="2 have decisions that were not scored"):
        read_run_credits(ran.home, "dapo-3")


def test_a_group_that_lost_a_step_is_left_out_and_the_others_are_exported(ran: Ran) -> None:
    first = RlRunFolder(training_folder(ran.home) / "dapo-1")
    folder = RlRunFolder(training_folder(ran.home) / "dapo-4")
    folder.write_spec(msgspec.structs.replace(first.spec, run="dapo-4"))
    groups = GroupFolder(folder.path / "groups")
    for batch, rollouts in enumerate((ran.kept, (ran.long, ran.gapped))):
        groups.keep(RolloutGroup(update=0, batch=batch, split="train", index=4, policy="base",
                                 rollouts=rollouts))  # fmt: skip
    credits, _, facts = read_run_credits(ran.home, "dapo-4")
    assert tuple(credit.rollout for credit in credits) == ran.kept
    assert facts["dropped"] == {
        "have a rollout of which something was erased, archived or set aside": 1
    }


@pytest.mark.parametrize("name", RL)
def test_the_card_of_a_run_says_how_rewards_were_made(name: str, ran: Ran, tmp_path: Path) -> None:
    card = DatasetCard((exported(ran, name, tmp_path).folder / "README.md").read_text())
    assert name in card.data.tags
    assert "## Rewards of dapo-1" in card.text and "Rows of 1 group of 1 update" in card.text
    assert "left out: 1 have rewards that are all alike" in card.text
    assert "an answer was cut at its limit of tokens" in card.text.split("masked and why")[1]


def test_a_rollout_that_was_cut_counts_in_its_group_and_is_not_trained(
    ran: Ran, tmp_path: Path
) -> None:
    result = exported(ran, "verl-rl", tmp_path)
    cut = ran.kept[2]
    assert all(line["rollout"] != cut for line in lines(result.folder / "data.jsonl"))
    assert result.manifest.counts.untrained["an answer was cut at its limit of tokens"] > 0


def test_verl_lines_are_the_trainers_rows(ran: Ran, tmp_path: Path) -> None:
    found: Any = lines(exported(ran, "verl-rl", tmp_path).folder / "data.jsonl")
    rows = trained_rows(ran)
    assert [line["row"] for line in found] == list(rows)
    assert sum(line["rollout"] == ran.long for line in found) > 1
    for line in found:
        row = rows[line["row"]]
        assert (line["prompts"], line["responses"]) == (row.prompt, row.completion)
        assert line["response_mask"] == row.mask
        for name, values in (
            ("advantages", row.advantages), ("rollout_log_probs", row.sampled_logprobs),
        ):  # fmt: skip
            expected = [value if bit else 0.0 for value, bit in zip(values, row.mask, strict=True)]
            assert line[name] == expected


def test_slime_samples_are_the_trainers_rows(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the functions for slime's hooks, with a class of our own in its `Sample`'s place:
    slime is on no package index, and none of its code is run here."""
    folder = exported(ran, "slime-rl", tmp_path).folder
    monkeypatch.setattr(slime_rows, "DATA", folder / "data.jsonl")
    types = ModuleType("slime.utils.types")
    types.Sample = SimpleNamespace(  # type: ignore[attr-defined]
        from_dict=lambda fields: SimpleNamespace(**fields)
    )
    for module in ("slime", "slime.utils"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    monkeypatch.setitem(sys.modules, "slime.utils.types", types)
    groups = slime_rows.generate_rollout(None, 0, None)
    samples = [sample for group in groups for sample in group]
    rows = trained_rows(ran)
    assert [sample.metadata["row"] for sample in samples] == list(rows)
    raw, advantages = slime_rows.keep_advantages(None, samples)
    for sample, reward, advantage in zip(samples, raw, advantages, strict=True):
        row = rows[sample.metadata["row"]]
        assert sample.tokens == row.prompt + row.completion
        assert sample.response_length == len(row.completion)
        assert sample.loss_mask == row.mask
        trained = [at for at, bit in enumerate(row.mask) if bit]
        assert [sample.rollout_log_probs[at] for at in trained] == [
            row.sampled_logprobs[at] for at in trained
        ]
        assert {row.advantages[at] for at in trained} == {advantage}
        assert reward == (1.0 if row.rollout == ran.long else -1.0)
    assert len({sample.rollout_id for sample in samples}) == 2
    assert [sample.index for sample in samples] == list(range(len(samples)))
    with pytest.raises(IndexError, match="--num-rollout 1"):
        slime_rows.generate_rollout(None, 1, None)
    with pytest.raises(ValueError, match="evaluate"):
        slime_rows.generate_rollout(None, 0, None, evaluation=True)


@pytest.mark.parametrize("name", RL)
def test_the_same_run_again_is_the_same_bytes(name: str, ran: Ran, tmp_path: Path) -> None:
    first, second = (exported(ran, name, tmp_path / folder).folder for folder in "ab")
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()
    assert not exported(ran, name, tmp_path / "a").written


def test_parquet_of_a_run_says_the_same(ran: Ran, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("torch")
    as_lines = exported(ran, "verl-rl", tmp_path / "lines").folder / "data.jsonl"
    table = exported(ran, "verl-rl", tmp_path / "table", parquet=True).folder / "data.parquet"
    assert json.loads(json.dumps(verl_rows.read_rows(table))) == verl_rows.read_rows(as_lines)


@pytest.mark.parametrize(
    ("run", "cause"),
    [("no/run", "There is no training run"), ("dapo-9", "There is no training run")],
)
def test_what_is_no_run_is_refused(run: str, cause: str, ran: Ran) -> None:
    with pytest.raises(HoustonError, match=cause) as refused:
        read_run_credits(ran.home, run)
    assert refused.value.code == ExitCode.NOT_FOUND


def test_a_run_of_another_kind_or_without_a_lesson_is_refused(ran: Ran) -> None:
    other = training_folder(ran.home) / "sft-1"
    other.mkdir(parents=True)
    (other / "recipe.json").write_text("{}")
    with pytest.raises(HoustonError, match="not the folder of a run of reinforcement learning"):
        read_run_credits(ran.home, "sft-1")
    folder = RlRunFolder(training_folder(ran.home) / "dapo-2")
    spec = RlRunFolder(training_folder(ran.home) / "dapo-1").spec
    folder.write_spec(msgspec.structs.replace(spec, run="dapo-2"))
    with pytest.raises(HoustonError, match="No group of the run dapo-2 has anything to teach"):
        read_run_credits(ran.home, "po-2")
    gated = msgspec.structs.replace(spec.recipe, purify_gate=0.5)
    folder.write_spec(msgspec.structs.replace(spec, run="dapo-2", recipe=gated))
    with pytest.raises(HoustonError, match="The run dapo-2 has purify_gate"):
        read_run_credits(ran.home, "po-2")


def test_advantages_need_a_run_and_a_run_needs_room_for_them(ran: Ran, tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="only the groups of a run have") as refused:
        write_export(ran.home, ExportRequest(ran.kept, "verl-rl"), tmp_path / "a")
    assert refused.value.code == ExitCode.USAGE
    with pytest.raises(HoustonError, match="no room for advantages"):
        exported(ran, "trl", tmp_path / "b")
