"""The few words of shell through which a sandbox is started: groups, file size, filter, settings.

What they set is inherited by all that follows: the process joins the rollout's control groups
before it becomes bubblewrap, so nothing of a sandbox is ever outside them. If a step fails, nothing
is started. Filter and settings are opened as descriptors because that is how bubblewrap takes them.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILTER = 8
"""The descriptor of the filter; a terminal's pipe is 9."""
SETTINGS = 7
"""The descriptor of further arguments for bubblewrap."""
_BLOCK = 512
"""POSIX: `ulimit -f` counts in blocks of this many bytes."""
_WORDS = (
    'set -e; [ "$1" = 0 ] || ulimit -f "$1"; [ -z "$2" ] || exec 8<"$2"; '
    '[ -z "$3" ] || { exec 7<"$3"; rm -f -- "$3"; }; n=$4; shift 4; '
    'while [ "$n" -gt 0 ]; do echo $$ >"$1"; shift; n=$((n - 1)); done; exec "$@"'
)

_INSIDE = 'ulimit -u "$1"; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What a process is given before it becomes the sandbox."""

    doors: tuple[Path, ...] = ()
    """`cgroup.procs` of the groups to join."""
    file_bytes: int = 0
    """Most bytes of one file; 0 for no limit."""
    filter: Path | None = None
    """The seccomp program, None for none."""
    settings: Path | None = None
    """Arguments that no command line may show, each ended by NUL; removed when it is opened."""

    tasks: int = 0
    """Most processes and threads of one sandbox of an ordinary user; 0 where groups limit them."""

    def inside(self, command: Sequence[str]) -> list[str]:
        """The argument list that runs `command` in a sandbox, whose own number it limits.

        Set outside, the kernel would count all that the user runs (ucounts, Linux 5.14); set in
        the sandbox' user namespace, what runs in there. Of root it counts nothing.
        """
        if not self.tasks or not os.getuid():
            return list(command)
        return ["/bin/bash", "-c", _INSIDE, "limit", str(self.tasks), *command]

    def around(self, command: Sequence[str]) -> list[str]:
        """The argument list that starts `command` enclosed."""
        if not (self.doors or self.file_bytes or self.filter or self.settings):
            return list(command)
        blocks = str(-(-self.file_bytes // _BLOCK))
        filter_file = str(self.filter or "")
        settings = str(self.settings or "")
        head = ["/bin/sh", "-c", _WORDS, "enclose", blocks, filter_file, settings]
        return [*head, str(len(self.doors)), *map(str, self.doors), *command]
