"""Every dialect is described where a person chooses one."""

from pathlib import Path

from tests.support.small_tokenizer import DIALECT_NAMES

CONFIGURATION = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_each_dialect_says_what_it_is_for() -> None:
    (told,) = [one for one in CONFIGURATION.read_text().splitlines() if "| `dialect` |" in one]
    for name in DIALECT_NAMES:
        assert f"`{name}`: " in told
