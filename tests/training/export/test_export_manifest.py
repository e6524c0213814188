"""Which rules masked what, in a manifest: read from reasons that quote what agents wrote."""

import pytest

from houston_daemon.training.export import export_manifest
from houston_shared.verdict_precedence import RuleReason, join_rule_reasons

SAID = (RuleReason("error_observation", 1, "npm install react@18; vue@3: exit code 1"),)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"mask: rule {join_rule_reasons(SAID)}", "mask: rule error_observation@1"),
        (
            f"mask: rule {join_rule_reasons((*SAID, RuleReason('blind_edit', 2, 'a.py')))}",
            "mask: rule blind_edit@2, error_observation@1",
        ),
        ("mask: rule", "mask: rule"),
        ("mask: judge it installs react@18", "mask: judge"),
        ("mask: human no", "mask: human"),
        ("trained in row r/0.0", "trained in another row"),
        ("not judged", "not judged"),
    ],
)
def test_a_reason_counts_for_the_rules_that_gave_it(text: str, kind: str) -> None:
    """An agent's packages are no rules, however they are written."""
    assert export_manifest.reason_kind(text) == kind
