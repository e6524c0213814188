"""How each point is brought about: what must happen so that somebody comes by it."""

import enum


class Means(enum.Enum):
    """What is done so that a point is reached."""

    START = "a start of the daemon"
    STOP = "a stop of the daemon"
    BEGIN = "a new rollout"
    OPEN = "a new workstation"
    BRANCH = "a branch of a workstation"
    WORKER = "the death of a worker"
    FORK_SERVER = "the death of the fork server"
    PAUSE = "a pause"
    CANCEL = "a cancel of a paused workstation"
    FULL = "a full disk"
    LATE = "a stop while a worker hangs"
    LOST = "the death of a worker in mid-call"
    CROWD = "many messages at once, after the daemon was stopped for a moment"
    TOKENS = "a rollout on an engine of the daemon's own"
    FAILING = "a rollout whose failed calls are corrected ahead"
    PLANNED = "a flow with a verifier"


WHEN: dict[str, Means] = {
    **dict.fromkeys(
        (
            "recorder.open.before",
            "recorder.epoch.before",
            "recorder.epoch.after",
            "recorder.bind.before",
            "recorder.bind.after",
            "recorder.ballast.made",
            "supervisor.lock.before",
            "supervisor.lock.after",
            "supervisor.recorder.before",
            "supervisor.ready.before",
            "supervisor.ready.after",
            "supervisor.fork_server.before",
            "supervisor.fork_server.after",
        ),
        Means.START,
    ),
    **dict.fromkeys(
        (
            "recorder.close.before",
            "recorder.close.after",
            "supervisor.drain.before",
            "supervisor.finish.before",
            "supervisor.stop.before",
            "supervisor.stop.after",
        ),
        Means.STOP,
    ),
    **dict.fromkeys(
        ("recorder.start.after", "worker.head.before", "worker.head.after"), Means.BEGIN
    ),
    **dict.fromkeys(
        (
            "worker.workspace.copied",
            "worker.workspace.placed",
            "worker.shadow.made",
            "worker.world.before",
            "worker.terminal.token",
            "worker.terminal.pane",
            "worker.terminal.started",
            "worker.command.noted",
            "worker.command.handed",
            "worker.file.before",
            "worker.evaluation.before",
            "worker.evaluation.after",
            "worker.snapshot.written",
            "worker.snapshot.named",
            "worker.state.before",
        ),
        Means.OPEN,
    ),
    **dict.fromkeys(
        (
            "recorder.ended.before",
            "supervisor.died.before",
            "supervisor.settle.before",
            "supervisor.settle.after",
            "fork_server.reap.after",
        ),
        Means.WORKER,
    ),
    "worker.branch.noted": Means.BRANCH,
    "supervisor.fork_server.lost": Means.FORK_SERVER,
    "worker.pause.before": Means.PAUSE,
    "supervisor.leftovers.before": Means.CANCEL,
    "recorder.commit.during": Means.CROWD,
    "recorder.alone.before": Means.FULL,
    "supervisor.drain.late": Means.LATE,
    "worker.recover.before": Means.LOST,
    "worker.recover.after": Means.LOST,
    "supervisor.engine.started": Means.TOKENS,
    "supervisor.engine.recorded": Means.TOKENS,
    "supervisor.engine.ready": Means.TOKENS,
    "worker.request.before": Means.TOKENS,
    **dict.fromkeys(
        (
            "worker.lookahead.before",
            "worker.lookahead.asked",
            "worker.lookahead.after",
            "worker.restore.before",
            "worker.purified.before",
            "worker.purified.after",
            "worker.takeover.between",
        ),
        Means.FAILING,
    ),
    **dict.fromkeys(
        ("worker.try.after", "worker.verifier.before", "worker.verifier.after"), Means.PLANNED
    ),
}
"""What must happen so that a point is reached; work alone reaches the others."""
ONCE = (
    "hello",
    "open",
    "moved",
    "close",
    "resume",
    "fork",
    "summary",
    "child",
    "page",
    "checkpoint",
    "head",
    "beat",
)
"""Second words of points that a process comes by once, or seldom."""
