"""The few words of shell through which a sandbox is started: groups, file size, filter.

What they set is inherited by all that follows: the process joins the rollout's control groups
before it becomes bubblewrap, so nothing of a sandbox is ever outside them. If a step fails, nothing
is started. The filter is opened as a descriptor because that is how `bwrap --seccomp` takes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILTER = 8
"""The descriptor of the filter; a terminal's pipe is 9."""
_BLOCK = 512
"""POSIX: `ulimit -f` counts in blocks of this many bytes."""
_WORDS = (
    'set -e; [ "$1" = 0 ] || ulimit -f "$1"; [ -z "$2" ] || exec 8<"$2"; n=$3; shift 3; '
    'while [ "$n" -gt 0 ]; do echo $$ >"$1"; shift; n=$((n - 1)); done; exec "$@"'
)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What a process is given before it becomes the sandbox."""

    doors: tuple[Path, ...] = ()
    """`cgroup.procs` of the groups to join."""
    file_bytes: int = 0
    """Most bytes of one file; 0 for no limit."""
    filter: Path | None = None
    """The seccomp program, None for none."""

    def around(self, command: Sequence[str]) -> list[str]:
        """The argument list that starts `command` enclosed."""
        if not (self.doors or self.file_bytes or self.filter):
            return list(command)
        blocks = str(-(-self.file_bytes // _BLOCK))
        filter_file = str(self.filter or "")
        head = ["/bin/sh", "-c", _WORDS, "enclose", blocks, filter_file, str(len(self.doors))]
        return [*head, *map(str, self.doors), *command]
