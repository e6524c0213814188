"""`houston notify test`: one message to every URL of `[notify]`, and what each answered.

It needs no daemon. When messages are sent by themselves is `review.notify.notifier_child`'s.
"""

import argparse

from houston_daemon.review.notify.apprise_services import open_services
from houston_daemon.review.notify.need_notifications import QuietHours, trial_message
from houston_shared import command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ConfigurationError, ExitCode


def add_notify_test_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="a JSON object for each URL")


def run_notify_test(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Send and print; exit code 1 where a message did not arrive."""
    settings = loaded.config.notify
    secret_redaction.install_secrets(loaded.config)
    if not settings.urls:
        raise ConfigurationError(
            "`[notify] urls` names nowhere to send to.",
            "Nothing was sent.",
            f'In {loaded.home.configuration}: [notify] urls = ["ntfy://ntfy.sh/YOUR-TOPIC"]',
        )
    QuietHours(settings)  # so that a wrong time zone is told here
    failed = False
    for service in open_services(settings.urls):
        problem = service.send(trial_message(loaded.home))
        failed = failed or bool(problem)
        if arguments.json:
            fields = {"service": service.label, "sent": not problem, "problem": problem}
            command_output.print_json_line(fields)
        else:
            command_output.print_line(f"{service.label}: {problem or 'sent'}")
    return int(ExitCode.FAILED if failed else ExitCode.DONE)
