"""Messages through Apprise itself, to a real server on loopback; and nothing of a URL in any word.

`apprise` comes with the extra `notify`, which `make test` installs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.review.notify.apprise_services import open_service
from houston_daemon.review.notify.need_notifications import Message, trial_message
from houston_shared.config import Configuration
from houston_shared.config_sections import NotifySettings
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.notification_urls import notification_secrets, url_parts
from houston_shared.secret_redaction import Redactor
from tests.support.ntfy import NtfyServer

MESSAGE = Message("title", "body\n<b>&amp;</b> *x*")
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general"


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    made = NtfyServer()
    yield made
    made.close()


def test_a_message_arrives_as_it_was_written(ntfy: NtfyServer) -> None:
    service = open_service(1, ntfy.url("alerts"))
    assert service.send(MESSAGE) == ""
    (arrived,) = ntfy.arrived
    assert arrived == {"topic": "alerts", "title": "title", "message": MESSAGE.body}


@pytest.mark.parametrize(("status", "words"), [(429, "too many requests"), (403, "forbidden")])
def test_a_refusal_is_told_without_the_url(
    ntfy: NtfyServer, status: int, words: str, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ntfy.answer = status
    service = open_service(1, ntfy.url("my-topic", "olga:passw0rd-xyz"))
    problem = service.send(MESSAGE)
    assert words in problem
    said = problem + service.label + service.key + caplog.text + "".join(capfd.readouterr())
    assert not [part for part in ("my-topic", "olga", "passw0rd") if part in said]


def test_a_server_that_is_away_is_told(ntfy: NtfyServer) -> None:
    url = ntfy.url("my-topic")
    ntfy.close()
    service = open_service(1, url)
    assert "Connection error" in service.send(MESSAGE)
    assert "my-topic" not in service.send(MESSAGE)


def test_two_topics_of_one_server_are_two_services(ntfy: NtfyServer) -> None:
    keys = [open_service(1, ntfy.url(topic)).key for topic in ("one", "two", "one")]
    assert keys[0] == keys[2] != keys[1]


def test_a_url_may_come_from_the_environment(
    ntfy: NtfyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NTFY_LOGIN", "ada:secret")
    monkeypatch.setenv("NTFY_URL", ntfy.url("second"))
    address = f"ntfy://${{NTFY_LOGIN}}@localhost:{ntfy.port}/first"
    for url in (address, "${NTFY_URL}"):
        assert open_service(1, url).send(MESSAGE) == ""
    assert [each["topic"] for each in ntfy.arrived] == ["first", "second"]


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        pytest.param("${NOT_THERE}", "the variable NOT_THERE, which is not set", id="variable"),
        pytest.param("bogus://topsecret", "URL 1 of `notify.urls` is not one", id="service"),
        pytest.param("topsecret", "URL 1 of `notify.urls` is not one", id="no url"),
    ],
)
def test_a_wrong_url_is_a_sentence_that_does_not_hold_it(url: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause) as raised:
        open_service(1, url)
    assert "topsecret" not in str(raised.value)


def test_without_apprise_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigurationError, match=r"houston-agents\[notify\]"):
        open_service(1, "ntfy://localhost/x")


def test_the_test_message_opens_the_console() -> None:
    assert trial_message(Home(Path("/data/home"))).body.endswith("\nhouston console")


@pytest.mark.parametrize(
    ("url", "private", "public"),
    [
        pytest.param(SLACK, ("T1JJ3T3L2", "TIiajkdnlazkcOXrIdevi7FQ"), (), id="keys as host"),
        pytest.param("ntfy://ada:pw@ntfy.sh:80/top", ("ada", "pw", "top"), ("ntfy.sh", "80"),
                     id="login"),
        pytest.param("json://localhost/a?token=x%2Fy", ("a", "token", "x/y", "x%2Fy"),
                     ("localhost",), id="query"),
        pytest.param("mailto://me:pw@mail.org?to=you@b.org", ("me", "pw", "you"), ("mail.org",),
                     id="mail"),
    ],
)  # fmt: skip
def test_what_of_a_url_is_private(
    url: str, private: tuple[str, ...], public: tuple[str, ...]
) -> None:
    parts = url_parts(url)
    assert set(private) <= set(parts)
    assert not set(public) & set(parts)


def test_keys_of_urls_are_taken_out_of_what_is_stored() -> None:
    config = Configuration(
        notify=NotifySettings(urls=(SLACK, "ntfy://ada:longpassword@ntfy.sh/alerts", "${GONE}"))
    )
    redactor = Redactor(dict(notification_secrets(config.notify.urls)))
    text = "TIiajkdnlazkcOXrIdevi7FQ longpassword general alerts ntfy.sh"
    assert redactor.text(text) == (
        "[secret:NOTIFY_URL_1_1] [secret:NOTIFY_URL_2_1] general alerts ntfy.sh"
    )
