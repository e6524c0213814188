"""Links in a workspace that would lead an evaluator to what it alone may read.

An evaluator that follows such a link scores its own solutions. They are looked for from where the
evaluator will stand, in a sandbox like its own and in the task's folder, because `/proc/self/cwd`
names that folder for whoever stands there. Links that lead elsewhere lead to what the agent sees
too, and are none of them. A link that a running session lays later is not seen here.
"""

SECONDS = 600.0
"""Longest look; it is not the evaluator's time."""
MOST = 10
"""Links that are named."""

FIND = (
    'type find xargs realpath head >/dev/null && cd -- "$1" && here=$(pwd -P) || exit 1; seen=();'
    ' for one in "${@:2}"; do seen+=("$(realpath -m -- "$one")"); done;'
    ' own() { local one; for one in "${seen[@]}"; do'
    ' case "$1" in "$one"|"$one"/*) return 1;; esac; done;'
    ' case "$1" in "$here"|"$here"/*|/proc|/proc/*) return 0;; esac; return 1; };'
    ' links() { find "$WORKSPACE" -type l -print0; };'
    ' links | xargs -0r realpath -mz -- | while IFS= read -rd "" to; do'
    ' own "$to" && exit 1; :; done && exit;'
    " links | while IFS= read -rd '' link; do"
    ' own "$(realpath -m -- "$link")" && printf "%s\\0" "${link#"$WORKSPACE"/}"; done'
    f" | head -zn {MOST + 1}"
)
"""Bash: prints such links, each with a NUL behind it, and ends with 0. `$1` is the task's folder,
and the words after it are parts of it that the agent sees, too.

All are resolved by one process; only where that finds something each is asked for by itself."""


def said(found: bytes) -> str:
    """What the agent is told of the links that `FIND` printed; empty where there is none."""
    names = found.decode(errors="replace").split("\0")[:-1]
    if not names:
        return ""
    more = " and more" if len(names) > MOST else ""
    return (
        f"Links of the workspace lead to the evaluator's own files or into /proc:"
        f" {', '.join(names[:MOST])}{more}. Work with such links is not scored; remove them."
    )
