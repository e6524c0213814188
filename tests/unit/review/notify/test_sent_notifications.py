"""What was sent stays sent, whenever the notifier is killed."""

from pathlib import Path

import msgspec
import pytest

from houston_daemon.review.notify import sent_notifications
from houston_daemon.review.notify.sent_notifications import SentNotifications
from houston_shared.errors import HoustonError
from tests.unit.review.notify.test_need_notifications import notification

A, B = notification(1), notification(2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notifications.json"


def opened(file: Path, *services: str) -> SentNotifications:
    return SentNotifications(file, services or ("x",))


def test_a_reason_is_taken_once(file: Path) -> None:
    first = opened(file)
    assert first.is_new
    first.take([A])
    again = opened(file)
    assert not again.is_new
    assert again.was_notified(A) and not again.was_notified(B)
    assert again.delivery("x").waiting == [A]


def test_what_was_on_its_way_is_not_sent_again(file: Path) -> None:
    killed = opened(file)
    killed.take([A, B])
    assert killed.begin("x", 1) == [A]
    again = opened(file)
    assert again.delivery("x").waiting == [B]
    assert again.unknown == [A]


def test_what_did_not_arrive_waits_first(file: Path) -> None:
    sent = opened(file)
    sent.take([A, B])
    sent.begin("x", 1)
    sent.end("x", False, 5)
    assert opened(file).delivery("x").waiting == [A, B]
    sent.begin("x", 1)
    sent.end("x", True, 6)
    again = opened(file).delivery("x")
    assert (again.waiting, again.sent_at) == ([B], 6)


def test_each_service_has_its_own(file: Path) -> None:
    sent = opened(file, "x", "y")
    sent.take([A])
    sent.begin("x", 1)
    sent.end("x", True, 6)
    assert sent.delivery("y").waiting == [A]
    assert opened(file, "z").delivery("z").waiting == [], "a new one is not told of old ones"


def test_what_is_only_remembered_waits_for_nobody(file: Path) -> None:
    sent = opened(file)
    sent.take([A, B], {A.key})
    assert sent.was_notified(A) and sent.delivery("x").waiting == [B]


def test_a_forgotten_reason_is_told_again(file: Path) -> None:
    sent = opened(file)
    sent.take([A, B])
    sent.forget({A.key})
    assert not opened(file).was_notified(A)
    assert opened(file).was_notified(B)


def test_no_more_wait_than_a_service_will_ever_take(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_notifications, "MAX_WAITING_MESSAGES", 3)
    sent = opened(file)
    assert sent.take([notification(number) for number in range(5)]) == 2
    assert [each.rollout for each in sent.delivery("x").waiting] == [
        "probe-2",
        "probe-3",
        "probe-4",
    ]


@pytest.mark.parametrize("content", [b"", b"{", b'{"told": 3}', b"\xff"])
def test_a_file_that_cannot_be_read_sends_nothing(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(HoustonError, match=f"{file} cannot be read"):
        opened(file)


def test_only_its_owner_reads_it(file: Path) -> None:
    opened(file).take([A])
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_waits_says_what_is_said_of_it_now(file: Path) -> None:
    sent = opened(file, "x", "y")
    sent.take([A, B])
    erased = msgspec.structs.replace(A, text="(erased)")
    sent.renew_texts([erased])
    for service in ("x", "y"):
        assert opened(file, "x", "y").delivery(service).waiting == [erased, B]
