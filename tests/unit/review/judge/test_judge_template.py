"""The judge's words: what a template must have, and that filling it in opens no gap."""

from pathlib import Path

import pytest

from houston_daemon.review.judge import judge_template
from houston_shared.errors import ConfigurationError

WHOLE = (
    "=== system ===\nJudge.\n"
    "=== window ===\n{{task}} {{scores}} {{guidance}} {{key}} {{steps}} {{judged}}\n"
    "=== again ===\n{{problem}} {{judged}}\n"
)


def test_the_packaged_template_can_be_copied_edited_and_read(tmp_path: Path) -> None:
    packaged = judge_template.load_template()
    copy = tmp_path / "mine.md"
    copy.write_text(judge_template.JUDGE_FORM.read(None) + "\nBe brief.\n")
    edited = judge_template.load_template(copy)
    assert edited.again.endswith("Be brief.")
    assert edited.digest != packaged.digest, "other words are another judge"
    assert len(packaged.version) == 8


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("no parts at all", "parts"),
        (WHOLE.replace("{{steps}}", ""), "{{steps}}"),
        (WHOLE.replace("{{problem}}", ""), "{{problem}}"),
        (WHOLE.replace("Judge.", "Judge {{task}}."), "{{task}}"),
        (WHOLE.replace("{{task}}", "{{task}} {{secrets}}"), "{{secrets}}"),
        (WHOLE.replace("Judge.", ""), "parts"),
        (WHOLE + "=== again ===\n{{problem}} {{judged}}\n", "twice"),
    ],
)
def test_a_template_that_hides_something_from_the_judge_is_refused(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        judge_template.parse_template(text, "mine.md")
    assert named in refused.value.cause
    assert "mine.md" in refused.value.cause
    assert refused.value.next == "houston judge --print-template"


def test_what_is_filled_in_opens_no_further_gap() -> None:
    template = judge_template.parse_template(WHOLE, "here")
    gaps = dict.fromkeys(("scores", "guidance", "key", "judged"), "-")
    message = template.message({**gaps, "task": "{{steps}}", "steps": "{{task}} {{judged}}"})
    assert message == "{{steps}} - - - {{task}} {{judged}} -"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.md"):
        judge_template.load_template(Path("nowhere.md"))
