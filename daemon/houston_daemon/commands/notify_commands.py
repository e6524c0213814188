"""`houston notify test`: one message to every URL of `[notify]`, and what each answered.

It needs no daemon. `review.notify.notifier_child` sends messages automatically.
"""

import argparse

from houston_daemon.review.notify.apprise_services import open_service
from houston_daemon.review.notify.need_notifications import QuietHours, trial_message
from houston_shared import command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, ExitCode
from houston_shared.home import Home


def add_notify_test_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="a JSON object for each URL")


def run_notify_test(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Send and print; exit code 1 where a message did not arrive, 78 for a URL that is none."""
    settings = loaded.config.notify
    secret_redaction.install_secrets(loaded.config)
    if not settings.urls:
        raise ConfigurationError(
            "`[notify] urls` names no address to send to.",
            "Nothing was sent.",
            f'In {loaded.home.configuration}: [notify] urls = ["ntfy://ntfy.sh/YOUR-TOPIC"]',
        )
    QuietHours(settings)  # so that a wrong time zone is told here
    codes = [_try_url(number, url, arguments.json, loaded.home) for number, url in
             enumerate(settings.urls, 1)]  # fmt: skip
    return int(max(codes))


def _try_url(number: int, url: str, as_json: bool, home: Home) -> ExitCode:
    """Send to one URL and print what came of it."""
    label, code = f"url {number}", ExitCode.DONE
    try:
        service = open_service(number, url)
    except ConfigurationError as error:
        problem, code = f"{error.cause} {error.next}", ExitCode.CONFIGURATION
    else:
        label = service.label
        if problem := service.send(trial_message(home)):
            code = ExitCode.FAILED
    if as_json:
        fields = {"service": label, "sent": not problem, "problem": problem}
        command_output.print_json_line(fields)
    else:
        command_output.print_line(f"{label}: {problem or 'sent'}")
    return code
