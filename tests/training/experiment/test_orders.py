"""Orders: what is measured was never trained, and what counts as following one."""

from pathlib import Path

import pytest

from houston_daemon.training.experiment import orders
from houston_daemon.training.experiment.orders import Order, draw, follows, read
from houston_shared.errors import ConfigurationError
from houston_shared.records import Call

OPEN = Order("Open the file notes/plan.md first.", "open", True, "open_file",
             {"path": "notes/plan.md"})  # fmt: skip


def call(name: str, error: str = "", **arguments: object) -> Call:
    return Call(id="2.0", name=name, arguments=dict(arguments), error=error)


@pytest.mark.parametrize(
    ("calls", "followed"),
    [
        ([call("open_file", path="notes/plan.md")], True),
        ([call("open_file", path="./notes/plan.md", line_number=3)], True),
        ([call("open_file", path="notes/plan.md"), call("finish")], True),
        ([call("open_file", path="plan.md")], False),
        ([call("open_file", path="notes/plan.md.old")], False),
        ([call("list_files", path="notes")], False),
        ([call("list_files"), call("open_file", path="notes/plan.md")], False),
        ([call("open_file", "`path` is no text", path="notes/plan.md")], False),
        ([call("open_file")], False),
        ([], False),
    ],
)
def test_an_order_is_followed_by_the_right_call_on_the_right_thing(
    calls: list[Call], followed: bool
) -> None:
    assert follows(OPEN, calls) is followed


@pytest.mark.parametrize(
    ("place", "followed"), [({}, True), ({"dir_path": "./"}, True), ({"dir_path": "notes"}, False)]
)
def test_a_place_that_was_not_named_is_the_whole_workspace(
    place: dict[str, str], followed: bool
) -> None:
    order = Order("Find plan.md.", "find", False, "find_file", {"file_name": "plan.md"})
    assert follows(order, [call("find_file", file_name="plan.md", **place)]) is followed


def test_nothing_that_is_measured_was_trained() -> None:
    known = read()
    trained = draw(known, "train", 200, 1)
    measured = draw(known, "held_out", 100, 1)
    assert len({one.text for one in trained}) == 200
    assert not {one.text for one in trained} & {one.text for one in measured}
    things = {str(value) for one in trained for value in one.arguments.values()}
    assert not [one for one in measured if things & {str(v) for v in one.arguments.values()}]
    assert {one.known for one in trained} == {True}
    assert {one.known for one in measured} == {True, False}


def test_every_place_of_a_phrase_is_filled_and_a_seed_draws_the_same() -> None:
    known = read()
    drawn = draw(known, "held_out", 80, 3)
    assert not [one for one in drawn if "$" in f"{one.text}{one.arguments}"]
    assert drawn == draw(known, "held_out", 80, 3) != draw(known, "held_out", 80, 4)
    with pytest.raises(ConfigurationError, match="no 100000 different orders"):
        draw(read(), "held_out", 100_000, 1)


def test_a_vocabulary_whose_parts_share_a_word_is_refused(tmp_path: Path) -> None:
    text = orders.PACKAGED.read_text(encoding="utf-8").replace('"silver"', '"budget"')
    (tmp_path / "orders.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"words \['budget'\] are in both parts"):
        read(tmp_path / "orders.toml")
