"""Exports of real rollouts: the same again, what one verdict changes, splits, recipes, refusals."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.export.export_recipe import choose_export_recipe
from houston_daemon.training.export.export_run import ExportRequest, write_export
from houston_daemon.training.export.held_out_split import HeldOutSplit
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared import secret_redaction, wire
from houston_shared.errors import HoustonError
from tests.training.export.conftest import SECRET, Scene, turns
from tests.training.export.writing import ROW_FORMATS, lines
from tests.training.rows.played_rollouts import Turn, copied


def files(folder: Path) -> dict[str, bytes]:
    found = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def rows(folder: Path, name: str = "data.jsonl") -> dict[str, list[Any]]:
    """Lines by the row they are of."""
    by_row: dict[str, list[Any]] = {}
    for line in lines(folder / name):
        metadata: Any = line.get("metadata", line)
        by_row.setdefault(metadata["row"], []).append(line)
    return by_row


BOTH = [(name, False) for name in ROW_FORMATS]
BOTH += [(name, True) for name, format in ROW_FORMATS.items() if not format.only_lines]


@pytest.mark.parametrize(("name", "parquet"), BOTH)
def test_the_same_again_is_the_same_bytes(
    name: str, parquet: bool, scene: Scene, tmp_path: Path
) -> None:
    held_out = HeldOutSplit(tasks=(task(scene, scene.short.id),))
    request = ExportRequest(scene.ids, name, held_out=held_out, parquet=parquet)
    first, second = (write_export(scene.home, request, tmp_path / folder) for folder in "ab")
    assert files(first.folder) == files(second.folder)
    assert first.manifest == second.manifest
    assert first.written and second.written
    again = write_export(scene.home, request, tmp_path / "a")
    assert not again.written
    assert files(again.folder) == files(second.folder)


def task(scene: Scene, rollout: str) -> str:
    return str(scene.stage.rig.query("SELECT task FROM rollouts WHERE id = ?", rollout)[0][0])


@pytest.mark.parametrize("name", ["trl", "trl-chat", "slime", "raw"])
def test_one_verdict_changes_the_rows_it_touches_and_no_other(
    name: str, scene: Scene, tmp_path: Path
) -> None:
    request = ExportRequest(scene.ids, name, recipe=choose_export_recipe("apollo"))
    rollout, step = scene.short.id, {"trl": 1, "trl-chat": 2, "slime": 3, "raw": 1}[name]
    before = rows(write_export(scene.home, request, tmp_path / "before").folder)
    scene.stage.judge(rollout, step, "mask")
    after = write_export(scene.home, request, tmp_path / "after")
    changed = {row for row in before if rows(after.folder).get(row) != before[row]}
    assert changed == {f"{rollout}/0.0"}
    assert after.manifest.verdicts.people >= 1
    assert "mask: human" in after.manifest.counts.untrained
    scene.stage.judge(rollout, step, "undecided")
    back = write_export(scene.home, request, tmp_path / "back")
    assert rows(back.folder) == before
    assert (back.folder / "data.jsonl").read_bytes() == (
        tmp_path / "before" / "data.jsonl"
    ).read_bytes()


def test_rules_and_judges_are_named_with_their_versions(scene: Scene, tmp_path: Path) -> None:
    scene.stage.judge(scene.short.id, 1, "mask", "judge")
    scene.stage.judge(scene.short.id, 2, "keep", "judge")
    manifest = write_export(scene.home, ExportRequest((scene.short.id,)), tmp_path / "out").manifest
    assert manifest.verdicts.judges == {"judge:test": 2}
    assert manifest.verdicts.counts == {"keep by judge": 1, "mask by judge": 1}
    counts = manifest.counts
    assert counts.untrained == {"mask: judge": counts.sampled - counts.trained}
    for step in (1, 2):
        scene.stage.judge(scene.short.id, step, "undecided", "judge")


def test_a_step_that_several_share_is_judged_once(scene: Scene, tmp_path: Path) -> None:
    """One person's mask of one step is one, however many branches the step has."""
    scene.stage.judge(scene.long.id, 1, "mask")
    try:
        manifest = write_export(scene.home, ExportRequest(scene.ids), tmp_path / "out").manifest
    finally:
        scene.stage.judge(scene.long.id, 1, "undecided")
    assert (manifest.verdicts.people, manifest.verdicts.counts) == (1, {"mask by human": 1})
    assert "masked in another rollout" in manifest.counts.untrained


def test_the_manifest_says_what_is_there(scene: Scene, tmp_path: Path) -> None:
    import hashlib

    manifest = write_export(scene.home, ExportRequest(scene.ids), tmp_path / "out").manifest
    written = json.loads((tmp_path / "out" / "manifest.json").read_text())
    data = (tmp_path / "out" / "data.jsonl").read_bytes()
    assert written["content_hash"] == hashlib.sha256(data).hexdigest()
    exported = lines(tmp_path / "out" / "data.jsonl")
    assert written["rows"] == len(exported) == sum(source["rows"] for source in written["sources"])
    assert written["files"][0]["tokens"] == sum(row["tokens"] for row in exported)  # type: ignore[misc]
    counts = manifest.counts
    assert counts.trained == sum(row["trained"] for row in exported)  # type: ignore[misc]
    assert counts.trained + sum(counts.untrained.values()) == counts.sampled < counts.all
    assert counts.untrained.keys() == {"trained in another row", "trained in another rollout"}
    assert [source["rollout"] for source in written["sources"]] == list(scene.ids)
    for source in manifest.sources:
        ((seq,),) = scene.stage.rig.query(
            "SELECT last_seq FROM rollouts WHERE id = ?", source.rollout
        )
        assert source.newest_seq == seq
    past = {source.rollout: source.past_seq for source in manifest.sources}
    assert past == {
        scene.short.id: 0,
        scene.long.id: 0,
        scene.branch.id: next(
            source.newest_seq for source in manifest.sources if source.rollout == scene.long.id
        ),
    }
    assert written["dialects"] == ["chatml-json"]
    assert written["ids_from"] == {"ledger": len(exported)}
    assert sum(drawn["tokens"] for drawn in written["drawn"]) == written["counts"]["sampled"]
    assert {drawn["logprob_kind"] for drawn in written["drawn"]} == {"before_temperature"}
    assert {drawn["sampling"]["temperature"] for drawn in written["drawn"]} == {0.7}
    assert list(written["tokenizers"]) == [scene.short.engine.family.tokenizer]
    assert manifest.split["train"] == sorted({task(scene, rollout) for rollout in scene.ids})


def test_no_sampled_token_is_trained_twice_with_a_branch_beside(
    scene: Scene, tmp_path: Path
) -> None:
    folder = write_export(scene.home, ExportRequest(scene.ids, "raw"), tmp_path / "out").folder
    spans: Any = [span for line in lines(folder / "data.jsonl") for span in line["spans"]]  # type: ignore[attr-defined]
    trained = Counter(span["sample_seq"] for span in spans if span["weight"])
    assert trained and set(trained.values()) == {1}
    assert {span["sample_seq"] for span in spans} == set(trained)


def test_held_out_tasks_are_in_a_file_of_their_own(scene: Scene, tmp_path: Path) -> None:
    held_out = HeldOutSplit(tasks=(task(scene, scene.long.id),))
    request = ExportRequest(scene.ids, recipe=choose_export_recipe("apollo"), held_out=held_out)
    result = write_export(scene.home, request, tmp_path / "out")
    train, test = (rows(result.folder, f"{name}.jsonl") for name in ("data", "held_out"))
    assert {row.partition("/")[0] for row in train} == {scene.short.id}
    assert {row.partition("/")[0] for row in test} == {scene.long.id, scene.branch.id}
    assert all(len(copies) == 7 for copies in train.values())
    assert all(len(copies) == 1 for copies in test.values())
    assert [source.rollout for source in result.manifest.sources if source.held_out] == sorted(
        (scene.long.id, scene.branch.id)
    )


def test_a_task_under_another_name_is_held_out_with_it(scene: Scene, tmp_path: Path) -> None:
    """Its folder was copied and its budget changed; the rollouts have nothing in common."""
    rig, family = scene.stage.rig, scene.short.engine.family
    first = scene.stage.play(family, turns(2))
    name = task(scene, first.id)
    shown = (rig.folder / "tasks" / name / "workspace" / "README.md").read_text()
    copy = scene.stage.play(family, turns(3, first=40), files={"README.md": shown})
    ids = tuple(sorted((first.id, copy.id, scene.short.id)))
    request = ExportRequest(ids, held_out=HeldOutSplit(tasks=(name,)))
    result = write_export(scene.home, request, tmp_path / "out")
    assert set(result.manifest.split["held_out"]) == {name, task(scene, copy.id)}
    assert {row.partition("/")[0] for row in rows(result.folder)} == {scene.short.id}


def test_answers_that_are_no_action_are_for_raw_alone(scene: Scene, tmp_path: Path) -> None:
    """What learns from failures, too, needs their ids and log-probabilities; no SFT does."""
    played = scene.stage.play(
        scene.short.engine.family, [Turn(f"no call {n}", (), "malformed") for n in range(3)]
    )
    scene.stage.judge(played.id, 4, "mask")  # the last answer, which ends it
    for name in ROW_FORMATS.keys() - {"raw"}:
        with pytest.raises(HoustonError, match=r"Nothing would be trained|cannot be written"):
            write_export(
                scene.home, ExportRequest((played.id,), name, rules="off"), tmp_path / name
            )
        assert not (tmp_path / name).exists()
    result = write_export(
        scene.home, ExportRequest((played.id,), "raw", rules="off"), tmp_path / "raw"
    )
    (line,) = lines(result.folder / "data.jsonl")
    whys = [span["why"].partition(":")[0] for span in line["spans"]]
    assert whys == ["no action"] * 3 + ["mask"]
    assert all(len(span["logprobs"]) == span["end"] - span["start"] for span in line["spans"])
    assert sum(line["weights"]) == result.manifest.counts.trained == 0


def test_apollo_repeats_rows_in_the_file_itself(scene: Scene, tmp_path: Path) -> None:
    once = write_export(scene.home, ExportRequest(scene.ids), tmp_path / "once")
    many = write_export(
        scene.home,
        ExportRequest(scene.ids, recipe=choose_export_recipe("apollo", 5)),
        tmp_path / "many",
    )
    single, copies = rows(once.folder), rows(many.folder)
    assert copies.keys() == single.keys()
    assert any("summary" in row for row in single)
    for row, repeated in copies.items():
        assert repeated == single[row] * (10 if "summary" in row else 7)
    order = [line["row"] for line in lines(many.folder / "data.jsonl")]
    assert order != sorted(order)  # type: ignore[type-var]
    assert many.manifest.counts == once.manifest.counts


def test_without_masking_and_without_summaries(scene: Scene, tmp_path: Path) -> None:
    scene.stage.judge(scene.short.id, 2, "mask")
    options = RowOptions(masking=False, roles=("policy",))
    result = write_export(scene.home, ExportRequest(scene.ids, rows=options), tmp_path / "out")
    scene.stage.judge(scene.short.id, 2, "undecided")
    assert not any("summary" in row for row in rows(result.folder))
    assert not any(why.startswith("mask") for why in result.manifest.counts.untrained)
    assert result.manifest.options["masking"] is False


@pytest.mark.parametrize(
    ("name", "count"), [("trl", 1), ("trl-chat", 1), ("slime", None), ("openai", None), ("raw", 0)]
)
def test_a_row_in_which_everything_is_masked(
    name: str, count: int | None, scene: Scene, tmp_path: Path
) -> None:
    """TRL's has no line of it and the manifest says so; slime's and OpenAI's are refused."""
    for step in (1, 2, 3, 4):
        scene.stage.judge(scene.short.id, step, "mask")
    request, row = ExportRequest(scene.ids, name), f"{scene.short.id}/0.0"
    try:
        if count is None:
            with pytest.raises(HoustonError) as refused:
                write_export(scene.home, request, tmp_path / "out")
            assert row in refused.value.cause and "--leave-out" in refused.value.next
            assert not (tmp_path / "out").exists()
            request = ExportRequest(scene.ids, name, leave_out=True)
        result = write_export(scene.home, request, tmp_path / "out")
        assert [each.row for each in result.manifest.left_out] == ([] if count == 0 else [row])
        alone = ExportRequest((scene.short.id,), name)
        if name == "raw":
            assert write_export(scene.home, alone, tmp_path / "alone").manifest.rows == 1
            return
        with pytest.raises(HoustonError, match=r"Nothing would be trained|cannot be written"):
            write_export(scene.home, alone, tmp_path / "alone")
        assert not (tmp_path / "alone").exists()
    finally:
        for step in (1, 2, 3, 4):
            scene.stage.judge(scene.short.id, step, "undecided")


def test_another_export_is_replaced_only_by_force(scene: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_export(scene.home, ExportRequest(scene.ids), folder)
    before = files(folder)
    for other in (
        ExportRequest((scene.short.id,)),
        ExportRequest(scene.ids, "raw"),
        ExportRequest(scene.ids, parquet=True),
        ExportRequest(scene.ids, recipe=choose_export_recipe("shuffled")),
    ):
        with pytest.raises(HoustonError, match="holds another export"):
            write_export(scene.home, other, folder)
        assert files(folder) == before
    forced = write_export(scene.home, ExportRequest(scene.ids, "openai", force=True), folder)
    assert forced.written
    assert set(files(folder)) == {"README.md", "data.jsonl", "data.rows.jsonl", "manifest.json"}


def test_a_damaged_data_file_is_not_the_same_export(scene: Scene, tmp_path: Path) -> None:
    result = write_export(scene.home, ExportRequest(scene.ids), tmp_path / "out")
    whole = files(result.folder)
    (result.folder / "data.jsonl").write_bytes(whole["data.jsonl"][:-9])
    with pytest.raises(HoustonError, match="holds another export"):
        write_export(scene.home, ExportRequest(scene.ids), tmp_path / "out")
    write_export(scene.home, ExportRequest(scene.ids, force=True), tmp_path / "out")
    assert files(result.folder) == whole


@pytest.mark.parametrize("name", ["notes.txt", "data.jsonl", "manifest.json"])
def test_a_folder_with_other_files_is_left_alone(name: str, scene: Scene, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(HoustonError, match="is not an export"):
        write_export(scene.home, ExportRequest(scene.ids), tmp_path)
    assert files(tmp_path) == {name: b"mine"}


def test_ids_that_hold_a_secret_are_refused_and_texts_are_redacted(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was none as the rollout ran: its words stand in a thought."""
    monkeypatch.setenv("PROBE_API_KEY", SECRET)
    secret_redaction.process_redactor.cache_clear()
    try:
        for name in ("trl", "raw"):
            with pytest.raises(HoustonError) as refused:
                write_export(scene.home, ExportRequest(scene.ids, name), tmp_path / name)
            assert "[secret:PROBE_API_KEY]" in refused.value.cause
            request = ExportRequest(scene.ids, name, leave_out=True)
            exported = rows(write_export(scene.home, request, tmp_path / name).folder)
            assert exported and f"{scene.short.id}/0.0" not in exported
        for name in ("trl-chat", "slime", "openai"):
            folder = write_export(
                scene.home, ExportRequest(scene.ids, name), tmp_path / name
            ).folder
            for content in files(folder).values():
                assert SECRET.encode() not in content
            assert b"[secret:PROBE_API_KEY]" in (folder / "data.jsonl").read_bytes()
    finally:
        monkeypatch.undo()
        secret_redaction.process_redactor.cache_clear()


def test_it_is_told_which_rows_are_rendered(scene: Scene, tmp_path: Path) -> None:
    """With another tokenizer's file all of them; as messages there are no ids to come from it."""
    file = copied(scene.short.engine.family.tokenizer, tmp_path / "other")
    result = write_export(
        scene.home, ExportRequest(scene.ids, rows=RowOptions(tokenizer=file)), tmp_path / "out"
    )
    assert result.manifest.ids_from == {"rendered": result.manifest.rows}
    assert "Ids of " in (result.folder / "README.md").read_text()
    chat = write_export(scene.home, ExportRequest(scene.ids, "openai"), tmp_path / "chat")
    assert chat.manifest.ids_from == {}
    assert "Ids of " not in (chat.folder / "README.md").read_text()


def test_a_rollout_whose_texts_are_gone(scene: Scene, tmp_path: Path) -> None:
    """It is named and refused beside sound ones; left out, the manifest says which and why."""
    erased = scene.stage.play(scene.short.engine.family, scene.short.engine.turns[:2])
    ((seq,),) = scene.stage.rig.query(
        "SELECT seq FROM events WHERE rollout = ? AND step = 2 AND kind = 'sample'", erased.id
    )
    scene.stage.rig.ask(wire.EraseBodies(rollout=erased.id, seqs=(seq,)))
    ids = tuple(sorted((*scene.ids, erased.id)))
    id = erased.id
    with pytest.raises(HoustonError, match=f"{id}: Step 2 of rollout {id} was erased"):
        write_export(scene.home, ExportRequest(ids), tmp_path / "out")
    result = write_export(scene.home, ExportRequest(ids, leave_out=True), tmp_path / "out")
    assert [left_out.row for left_out in result.manifest.left_out] == [erased.id]
    assert {line["rollout"] for line in lines(tmp_path / "out" / "data.jsonl")} == set(scene.ids)
