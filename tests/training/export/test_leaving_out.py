"""`--leave-out`: what one rollout cannot train is trained by the next that shares it, once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.export import export_run
from houston_daemon.training.export.export_run import ExportRequest, ExportResult, write_export
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared import secret_redaction, wire
from houston_shared.home import Home
from houston_shared.records import ContextHead, ToolCall
from tests.support.small_tokenizer import small_tokenizer
from tests.support.written_home import WrittenHome, sample
from tests.training.export.conftest import SECRET, Scene, turns
from tests.training.export.writing import lines
from tests.training.rows.played_rollouts import Played, Turn


@pytest.fixture
def parent(scene: Scene) -> Played:
    """Its third thought holds what will be a secret."""
    telling = Turn(f"the key is {SECRET}", ("A2.0a",))
    return scene.stage.play(scene.short.engine.family, [*turns(2), telling])


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The secret is one now."""
    monkeypatch.setenv("PROBE_API_KEY", SECRET)
    secret_redaction.process_redactor.cache_clear()
    yield
    monkeypatch.undo()
    secret_redaction.process_redactor.cache_clear()


def trained(folder: Path) -> Counter[tuple[int, ...]]:
    """Stretches of ids that weigh something, by how often."""
    stretches: Counter[tuple[int, ...]] = Counter()
    for line in map(_any, lines(folder / "data.jsonl")):
        stretch: list[int] = []
        for id, weight in [*zip(line["input_ids"], line["weights"], strict=True), (0, 0.0)]:
            if weight:
                stretch.append(id)
            elif stretch:
                stretches[tuple(stretch)] += 1
                stretch = []
    return stretches


def _any(line: Any) -> Any:
    return line


def left_out_rows(result: ExportResult) -> list[str]:
    return [row.row for row in result.manifest.left_out]


def test_a_rollout_that_lost_a_text_after_its_branch_began(scene: Scene, tmp_path: Path) -> None:
    stage = scene.stage
    parent = stage.play(scene.short.engine.family, turns(3))
    branch = stage.branch(parent, 1, turns(1, first=9))
    ((seq,),) = stage.rig.query(
        "SELECT seq FROM events WHERE rollout = ? AND step = 3 AND kind = 'sample'", parent.id
    )
    stage.rig.ask(wire.EraseBodies(rollout=parent.id, seqs=(seq,)))
    result = write_export(
        scene.home, ExportRequest((parent.id, branch.id), leave_out=True), tmp_path / "out"
    )
    assert left_out_rows(result) == [parent.id]
    assert [source.rows for source in result.manifest.sources] == [0, 1]
    assert not any("trained with" in why for why in result.manifest.counts.untrained)
    (line,) = lines(tmp_path / "out" / "data.jsonl")
    alone = write_export(scene.home, ExportRequest((branch.id,)), tmp_path / "alone")
    assert [line] == lines(alone.folder / "data.jsonl")


@pytest.mark.usefixtures("known")
def test_a_row_that_is_refused_is_trained_by_the_branches_as_far_as_they_share_it(
    parent: Played, scene: Scene, tmp_path: Path
) -> None:
    """Steps 1 and 2 by two branches; the first of them to stand in the export has step 1."""
    branches = [scene.stage.branch(parent, step, turns(1, first=8 + step)) for step in (1, 2)]
    ids = (parent.id, *(branch.id for branch in branches))
    result = write_export(scene.home, ExportRequest(ids, leave_out=True), tmp_path / "out")
    assert left_out_rows(result) == [f"{parent.id}/0.0"]
    assert [source.rows for source in result.manifest.sources] == [0, 1, 1]
    alone = [write_export(scene.home, ExportRequest((id,)), tmp_path / id) for id in ids[1:]]
    first, second = (trained(each.folder) for each in alone)
    both = tuple(parent.engine.answers["policy", 1].ids)
    assert first[both] == second[both] == 1
    assert trained(result.folder) == first + second - Counter([both])


@pytest.mark.usefixtures("known")
def test_who_shares_it_may_be_refused_too(parent: Played, scene: Scene, tmp_path: Path) -> None:
    """The first branch has the secret in a step of its own: the second trains what they share."""
    bad = scene.stage.branch(parent, 1, [Turn(f"again {SECRET}", ("A9.0a",))])
    good = scene.stage.branch(parent, 1, turns(1, first=9))
    result = write_export(
        scene.home, ExportRequest((parent.id, bad.id, good.id), leave_out=True), tmp_path / "o"
    )
    assert left_out_rows(result) == [f"{parent.id}/0.0", f"{bad.id}/0.0"]
    alone = write_export(scene.home, ExportRequest((good.id,)), tmp_path / "alone")
    assert lines(result.folder / "data.jsonl") == lines(alone.folder / "data.jsonl")


@pytest.mark.usefixtures("known")
def test_what_stands_in_the_shared_part_is_lost_to_all(
    parent: Played, scene: Scene, tmp_path: Path
) -> None:
    branch = scene.stage.branch(parent, 3, turns(1, first=9))
    request = ExportRequest((parent.id, branch.id, scene.long.id), leave_out=True)
    result = write_export(scene.home, request, tmp_path / "out")
    assert left_out_rows(result) == [f"{parent.id}/0.0", f"{branch.id}/0.0"]
    assert result.manifest.sources[2].rows > 1


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that the whole export is written."""
    calls: list[None] = []
    write = export_run._ExportAttempt.write

    def counted(self: Any) -> Any:
        calls.append(None)
        return write(self)

    monkeypatch.setattr(export_run._ExportAttempt, "write", counted)
    return calls


@pytest.mark.usefixtures("known")
def test_a_group_whose_branches_are_all_refused_is_written_twice(
    parent: Played, scene: Scene, tmp_path: Path, tries: list[None]
) -> None:
    ids = [parent.id]
    ids += [scene.stage.branch(parent, 3, turns(1, first=9)).id for _ in range(5)]
    request = ExportRequest((*ids, scene.long.id), leave_out=True)
    result = write_export(scene.home, request, tmp_path / "out")
    assert left_out_rows(result) == [f"{id}/0.0" for id in ids]
    assert len(tries) == 2


@pytest.mark.usefixtures("known")
def test_what_nobody_shares_is_left_out_in_one_try(
    parent: Played, scene: Scene, tmp_path: Path, tries: list[None]
) -> None:
    """Also beside branches: of a rollout that goes on, each try would have more of it."""
    request = ExportRequest((parent.id, scene.long.id, scene.branch.id), leave_out=True)
    assert left_out_rows(write_export(scene.home, request, tmp_path / "out")) == [
        f"{parent.id}/0.0"
    ]
    assert len(tries) == 1


def test_a_rollout_that_breaks_after_its_first_row_leaves_no_line(tmp_path: Path) -> None:
    home = WrittenHome(tmp_path / "home")
    tokenizer = small_tokenizer(tmp_path)
    for name, third in (("broken", 900), ("sound", 5)):
        home.rollout(name)
        home.head(name, ContextHead(system="s", task="t", tools=(), rendered="",
                             token_ids=(1, 2, 3),
                             dialect="chatml-json", tokenizer=tokenizer))  # fmt: skip
        seq1 = _write_step(home, name, 1, None, 0, (1, 2, 3))
        seq2 = _write_step(home, name, 2, seq1, 5, (4,))
        _write_step(home, name, 3, seq2, third, (6,))
    request = ExportRequest(("broken", "sound"), leave_out=True, rows=RowOptions(unjudged="keep"))
    result = write_export(Home(tmp_path / "home"), request, tmp_path / "out")
    home.close()
    assert left_out_rows(result) == ["broken"]
    assert {line["rollout"] for line in lines(result.folder / "data.jsonl")} == {"sound"}
    assert result.manifest.counts.all == result.manifest.files[0].tokens


def _write_step(
    home: WrittenHome, rollout: str, step: int, parent: int | None, kept: int, new: tuple[int, ...]
) -> int:
    body = sample(
        parent_seq=parent, kept=kept, new_prompt_ids=new, token_ids=(10 + step, 50 + step),
        calls=(ToolCall(id=f"{step}.0", name="noop", arguments={}),),
    )  # fmt: skip
    return home.step(rollout, step, body, ("done",))
