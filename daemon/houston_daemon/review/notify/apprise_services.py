"""Messages through Apprise: one service for each URL, its answer, and no key in any text.

Apprise is imported when the first service is made, and only if the extra `notify` is installed. It
reports errors only in its log, so the log is read, and whatever a URL contains is removed. What is
sent, and when, is not known here.
"""

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from houston_daemon.review.notify.need_notifications import Message
from houston_shared.errors import ConfigurationError
from houston_shared.notification_urls import expand_notification_url, url_parts

APPRISE_LOGGER = "apprise"
KEY_CHARACTERS = 8
"""Of a hash: enough to tell URLs apart, too few to say what stands in one."""
NO_ANSWER = "it was not sent, and Apprise does not say why"
_HIDDEN = "[…]"
_MIN_HIDDEN_CHARACTERS = 3


class Service:
    """One URL."""

    def __init__(self, label: str, url: str, sender: Any) -> None:
        """sender: the service as Apprise made it of `url`."""
        self.label = label
        """Names it for people, without anything of the URL: `ntfy (url 1)`."""
        self.key = hashlib.sha256(url.encode()).hexdigest()[:KEY_CHARACTERS]
        """The same as long as the URL is. Apprise's own leaves out who is addressed."""
        self._sender = sender
        parts = sorted(url_parts(url), key=len, reverse=True)
        hidden = [re.escape(part) for part in parts if len(part) >= _MIN_HIDDEN_CHARACTERS]
        self._private = re.compile("|".join([re.escape(url), *hidden]))

    def send(self, message: Message) -> str:
        """Send it once, within some seconds; why that failed, empty where it did not."""
        from apprise import NotifyFormat, NotifyType

        with _recorded_warnings() as warnings:
            try:
                sent = self._sender.notify(
                    body=message.body,
                    title=message.title,
                    notify_type=NotifyType.WARNING,
                    body_format=NotifyFormat.TEXT,
                )
            except Exception as problem:  # noqa: BLE001 a service's own code; it is told
                return self._without_keys(f"{type(problem).__name__}: {problem}")
        return "" if sent else self._without_keys(warnings[-1] if warnings else NO_ANSWER)

    def _without_keys(self, text: str) -> str:
        line = " ".join(text.split())
        return self._private.sub(_HIDDEN, line)


def open_service(number: int, url: str) -> Service:
    """The service of a URL of the configuration. number: its place there, from 1.

    Raises ConfigurationError where Apprise is missing, a variable is not set, or the URL is none
    that Apprise knows; nothing of it is said.
    """
    apprise = _import_apprise()
    whole = expand_notification_url(url, os.environ)
    asset = apprise.AppriseAsset(app_id="Houston", app_desc="Houston", app_url="")
    with _recorded_warnings():
        sender = apprise.Apprise.instantiate(whole, asset=asset)
    if sender is None:
        raise ConfigurationError(
            f"URL {number} of `notify.urls` is not one that Apprise knows.",
            "No message goes there.",
            "https://appriseit.com/services/ lists them; one is ntfy://HOST/TOPIC",
        )
    return Service(f"{sender.service_name} (url {number})", whole, sender)


def _import_apprise() -> Any:
    try:
        import apprise
    except ModuleNotFoundError as problem:
        if problem.name != "apprise":
            raise
        raise ConfigurationError(
            "`notify.urls` needs the package apprise, which is not installed.",
            "No message goes there.",
            "pip install 'houston-agents[notify]'",
        ) from None
    return apprise


@contextlib.contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """What Apprise warns of meanwhile, and nowhere else: its words hold parts of URLs."""
    warnings: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    logger, recorder = logging.getLogger(APPRISE_LOGGER), Recorder(logging.WARNING)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(recorder)
    try:
        yield warnings
    finally:
        logger.removeHandler(recorder)
        logger.propagate = propagated
