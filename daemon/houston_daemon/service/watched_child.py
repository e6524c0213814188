"""What the processes that the supervisor starts and watches have in common (`review_processes`).

Each is `python -m MODULE PARENT HOME CONFIG`, ends with its parent, and reports problems on its
stdout, one JSON object per line.
"""

import os
import sys
from collections.abc import Mapping

import msgspec

from houston_daemon.service.parent_death import end_with_parent
from houston_shared import secret_redaction
from houston_shared.config import LoadedConfiguration, load_configuration

NICENESS = 15


def begin_watched_child() -> LoadedConfiguration | None:
    """Lower this process's priority and read the configuration; None if the parent has ended
    already. Raises HoustonError."""
    parent, home, config = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if not end_with_parent(parent):
        return None
    os.nice(NICENESS)
    loaded = load_configuration(home, config or None)
    secret_redaction.install_secrets(loaded.config)
    return loaded


def report_failures(failed: Mapping[str, str]) -> None:
    """Report to the supervisor what is wrong now: reasons by the rollout or service that they
    concern, under the empty name if they concern all."""
    os.write(sys.stdout.fileno(), msgspec.json.encode({"failed": failed}) + b"\n")
