"""Exports run the rules: what a rule masks is not trained, though nobody stored a verdict."""

from pathlib import Path
from typing import Any

import pytest

from houston_daemon.review.rollout_trace import RolloutTrace, Rule, RuleFinding
from houston_daemon.review.rules import rule_catalog
from houston_daemon.training.export import export_manifest
from houston_daemon.training.export.export_manifest import ExportManifest
from houston_daemon.training.export.export_run import ExportRequest, write_export
from houston_shared.errors import HoustonError
from houston_shared.task_tables import RuleSettings
from tests.training.export.conftest import turns
from tests.training.rows.played_rollouts import Family, Played, Stage, Turn, families

ERROR = f"error_observation@{rule_catalog.RULES['error_observation'].version}"
RULES = "[rules]\nerror_patterns = ['^O2[.]0']"
"""The observation of step 2 is an error."""


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return families(tmp_path_factory.mktemp("tokenizer"))["chatml"]


@pytest.fixture(scope="module")
def stage(scene: Any) -> Stage:
    return scene.stage


@pytest.fixture(scope="module")
def failing(stage: Stage, family: Family) -> Played:
    return stage.play(family, turns(3), top=RULES)


def export(stage: Stage, to: Path, *played: Played, **more: Any) -> ExportManifest:
    request = ExportRequest(tuple(rollout.id for rollout in played), **more)
    return write_export(stage.rig.home, request, to).manifest


@pytest.mark.parametrize("name", ["trl", "trl-chat"])
def test_what_nobody_judged_is_ruled(
    name: str, stage: Stage, failing: Played, tmp_path: Path
) -> None:
    manifest = export(stage, tmp_path / "a", failing, format=name)
    assert list(manifest.counts.untrained) == [f"mask: rule {ERROR}"]
    assert manifest.verdicts.counts == {"mask by rule": 1}
    assert manifest.verdicts.rules == {ERROR: 1}
    assert manifest.verdicts.ran.keys() >= {ERROR, "null_action@1", "blind_edit@6"}
    assert (manifest.verdicts.steps, manifest.verdicts.unjudged) == (4, 4)
    assert manifest.verdicts.sentence == (
        "Of 4 steps rules mask 1; nobody judged 4 (100 %): neither a judge nor a person."
    )
    assert stage.rig.query("SELECT count(*) FROM verdicts WHERE rollout = ?", failing.id)[0][0] == 0
    export(stage, tmp_path / "b", failing, format=name)
    for file in ("data.jsonl", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


STORED = {
    # name: (source, verdict, reason), whether step 2 is trained: rules run, stored, off
    "a rule's": (("rule", "mask", "blind_edit@1: an old one"), (False, False, True)),
    "a person's keep": (("human", "keep", "fine"), (True, True, True)),
    "a judge's keep": (("judge", "keep", "fine"), (False, True, True)),
    "a judge's mask": (("judge", "mask", "no"), (False, False, False)),
}


@pytest.mark.parametrize("case", STORED)
def test_whose_verdict_counts(case: str, stage: Stage, failing: Played, tmp_path: Path) -> None:
    """An error stays one whatever a judge says; `off` lets no rule count, not even a stored one."""
    (source, verdict, reason), expected = STORED[case]
    stage.judge(failing.id, 2, verdict, source, reason)
    try:
        for how, trained in zip(("run", "stored", "off"), expected, strict=True):
            counts = export(stage, tmp_path / how, failing, rules=how).counts
            assert (counts.trained == counts.sampled) == trained, how
    finally:
        stage.judge(failing.id, 2, "undecided", source)


def test_a_branch_has_what_is_said_of_its_past(
    stage: Stage, failing: Played, tmp_path: Path
) -> None:
    branch = stage.branch(failing, 2, turns(1, first=40))
    alone = export(stage, tmp_path / "alone", branch)
    assert alone.verdicts.counts == {"mask by rule": 1}
    assert list(alone.counts.untrained) == [f"mask: rule {ERROR}"]
    both = export(stage, tmp_path / "both", failing, branch)
    assert both.verdicts.counts == {"mask by rule": 1}


def test_no_action_weighs_nothing_without_rules(
    stage: Stage, family: Family, tmp_path: Path
) -> None:
    played = stage.play(family, [*turns(1), Turn("no call", (), "malformed"), *turns(1, 3)])
    for name in ("trl", "trl-chat"):
        manifest = export(stage, tmp_path / name, played, format=name, rules="off")
        assert list(manifest.counts.untrained) == ["no action"]
        assert manifest.verdicts.ran == {}


def test_a_rule_that_fails_is_named_and_stops_no_other_rollout(
    stage: Stage, failing: Played, family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = stage.play(family, turns(2))

    def breaks(trace: RolloutTrace, settings: RuleSettings) -> list[RuleFinding]:
        if trace.rollout == other.id:
            raise KeyError("nobody")
        return []

    monkeypatch.setattr(
        rule_catalog, "RULES", {**rule_catalog.RULES, "blind_edit": Rule(9, breaks)}
    )
    with pytest.raises(HoustonError, match=f"{other.id}: .*'blind_edit' failed.*--rules off"):
        export(stage, tmp_path / "refused", failing, other)
    manifest = export(stage, tmp_path / "rest", failing, other, leave_out=True)
    assert [left_out.row for left_out in manifest.left_out] == [other.id]
    assert manifest.verdicts.counts == {"mask by rule": 1}


@pytest.mark.parametrize(
    ("manifest", "words"),
    [({}, "does not say"), ({"verdicts": {"rules": {}, "judges": {}, "people": 0, "counts": {}}},
      "before rules were run")],
)  # fmt: skip
def test_data_from_elsewhere_say_what_they_know(manifest: dict[str, Any], words: str) -> None:
    assert words in export_manifest.judged_by_sentence(manifest)
