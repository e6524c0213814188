"""Only one JSON object with a score from 0 to 100 is a score."""

import pytest

from houston_daemon.environments.workstation.evaluator import Malformed, read_score

GOOD = [
    (b'{"overall_score": 50}', 50.0, {}),
    (b'\n {"overall_score": 0.5, "right": 5, "done": true}\n', 0.5, {"right": 5, "done": True}),
    (b'{"overall_score": 100, "note": "good"}', 100.0, {"note": "good"}),
    (b'{"overall_score": 1, "rows": [1, 2]}', 1.0, {"rows": "[1, 2]"}),
    (b'{"overall_score": 1, "big": 1e300}', 1.0, {"big": "1e+300"}),
]


@pytest.mark.parametrize(("output", "score", "metrics"), GOOD)
def test_a_score_is_read(output: bytes, score: float, metrics: dict[str, object]) -> None:
    assert read_score(output) == (score, metrics)


BAD = [
    (b"", "printed nothing"),
    (b"Score: 50", "not one JSON object"),
    (b"[50]", "not one JSON object"),
    (b'{"overall_score": 1}{"overall_score": 2}', "not one JSON object"),
    (b'loading...\n{"overall_score": 1}', "not one JSON object"),
    (b'{"score": 50}', "missing or no number"),
    (b'{"overall_score": "50"}', "missing or no number"),
    (b'{"overall_score": true}', "missing or no number"),
    (b'{"overall_score": null}', "missing or no number"),
    (b'{"overall_score": 101}', "between 0 and 100"),
    (b'{"overall_score": -1}', "between 0 and 100"),
    (b'{"overall_score": NaN}', "not one JSON object"),
    (b'{"overall_score": 1e999}', "between 0 and 100"),
    (b"\xff\xfe", "not one JSON object"),
    (b"[" * 100_000, "not one JSON object"),
]


@pytest.mark.parametrize(
    ("output", "why"), BAD, ids=[why + str(i) for i, (_, why) in enumerate(BAD)]
)
def test_nonsense_is_named(output: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read_score(output)


def test_what_can_be_read_can_be_said() -> None:
    """However deep it is nested, wherever the limit of recursion happens to lie."""
    for depth in range(800, 1_001):
        try:
            read_score(b'{"overall_score": 1, "deep": %s%s}' % (b"[" * depth, b"]" * depth))
        except Malformed as problem:
            assert "not one JSON object" in str(problem)


def test_a_flood_is_no_score() -> None:
    with pytest.raises(Malformed, match="longer than"):
        read_score(b'{"overall_score": 1}', cut=True)
