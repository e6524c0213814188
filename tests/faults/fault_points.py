"""Every point at which a fault can be ordered: its name, its module, what is about to happen there.

Names say whose process it is: `recorder` and `supervisor` are the daemon, `search` its child that
indexes, `fork_server` its child that forks workers, `worker` one of these (with its environment,
host and engine client). A test holds this table against the source.
"""

FAULT_POINTS: dict[str, tuple[str, str]] = {
    "recorder.open.before": (
        "recorder/recorder_thread.py",
        "the database is opened, checked and migrated",
    ),
    "recorder.epoch.before": (
        "recorder/recorder_thread.py",
        "the start is counted and what a crash left is settled, not committed",
    ),
    "recorder.epoch.after": (
        "recorder/recorder_thread.py",
        "the new epoch is on disk, no socket is bound",
    ),
    "recorder.bind.before": (
        "recorder/recorder_sockets.py",
        "a socket is bound; one of a dead daemon may lie there",
    ),
    "recorder.bind.after": ("recorder/recorder_sockets.py", "a socket is bound, without its mode"),
    "recorder.batch.before": (
        "recorder/recorder_loop.py",
        "messages are taken from the sockets, nothing is begun",
    ),
    "recorder.batch.after": (
        "recorder/recorder_loop.py",
        "a batch is on disk, nobody has heard of it",
    ),
    "recorder.transaction.begun": ("recorder/group_commit.py", "a transaction is open"),
    "recorder.commit.before": (
        "recorder/group_commit.py",
        "everything of a batch is done, nothing committed",
    ),
    "recorder.commit.during": (
        "recorder/group_commit.py",
        "a large batch is being committed in a thread, what follows is received",
    ),
    "recorder.commit.after": (
        "recorder/group_commit.py",
        "a batch is committed, memory does not know it",
    ),
    "recorder.append.between": (
        "recorder/journal_writer.py",
        "an event is inserted, its derived rows are not",
    ),
    "recorder.append.after": (
        "recorder/journal_writer.py",
        "an event and its rows are inserted, the chain in memory is the old one",
    ),
    "recorder.deliver.before": (
        "recorder/guidance_delivery.py",
        "an observation is stored, what people said is about to be joined to it",
    ),
    "recorder.answer.before": ("recorder/recorder_loop.py", "an answer is about to leave"),
    "recorder.push.before": (
        "recorder/recorder_loop.py",
        "answers have left, workers are not pushed",
    ),
    "recorder.publish.before": ("recorder/recorder_loop.py", "consoles are about to be told"),
    "recorder.tell.before": ("recorder/recorder_loop.py", "the supervisor is about to be told"),
    "recorder.blob.before": (
        "recorder/journal_writer.py",
        "a large body is about to be written beside its place",
    ),
    "recorder.blob.written": (
        "recorder/journal_writer.py",
        "a large body is written and not synced",
    ),
    "recorder.blob.synced": (
        "recorder/journal_writer.py",
        "a large body is synced under another name",
    ),
    "recorder.blob.named": (
        "recorder/journal_writer.py",
        "a large body has its name, its folder is not synced",
    ),
    "recorder.blob.back": (
        "recorder/message_receiver.py",
        "a large body is on disk, its transaction has not begun",
    ),
    "recorder.checkpoint.before": (
        "recorder/disk/wal_checkpoints.py",
        "the WAL is about to be copied into the database",
    ),
    "recorder.checkpoint.after": ("recorder/disk/wal_checkpoints.py", "the WAL was copied"),
    "recorder.head.before": (
        "recorder/disk/home_files.py",
        "the head is about to be written beside its place",
    ),
    "recorder.head.synced": (
        "recorder/disk/home_files.py",
        "the head is synced under another name",
    ),
    "recorder.head.named": (
        "recorder/disk/home_files.py",
        "the head has its name, the folder is not synced",
    ),
    "recorder.ballast.made": (
        "recorder/disk/disk_space_watch.py",
        "the ballast has its name and no bytes",
    ),
    "recorder.alone.before": (
        "recorder/group_commit.py",
        "a batch failed, its messages are tried one by one",
    ),
    "recorder.state.before": (
        "recorder/rollout_states.py",
        "a rollout is about to change its state",
    ),
    "recorder.state.after": (
        "recorder/rollout_states.py",
        "a state is changed, who must hear it is not noted",
    ),
    "recorder.assign.before": ("recorder/rollout_assignment.py", "a lease is about to be raised"),
    "recorder.ended.before": (
        "recorder/rollout_assignment.py",
        "the end of a worker is about to be noted",
    ),
    "recorder.start.after": (
        "recorder/handlers/rollout_handlers.py",
        "rollouts are queued, not committed",
    ),
    "recorder.close.before": (
        "recorder/recorder_loop.py",
        "a clean stop: the last checkpoint and head follow",
    ),
    "recorder.close.after": (
        "recorder/recorder_loop.py",
        "a clean stop: all is written, the database is open",
    ),
    "search.page.before": (
        "recorder/search_indexer.py",
        "a page of the search index is not committed",
    ),
    "search.page.after": ("recorder/search_indexer.py", "a page of the search index is committed"),
    "supervisor.lock.before": ("service/daemon_process.py", "the home is about to be taken"),
    "supervisor.lock.after": (
        "service/daemon_process.py",
        "the home is held, nothing else is done",
    ),
    "supervisor.recorder.before": ("service/daemon_process.py", "the recorder is about to start"),
    "supervisor.ready.before": (
        "service/daemon_process.py",
        "everything runs, the starter was not told",
    ),
    "supervisor.ready.after": (
        "service/daemon_process.py",
        "the starter was told, the supervisor has not begun",
    ),
    "supervisor.round.before": (
        "service/supervisor.py",
        "the supervisor is about to wait for events",
    ),
    "supervisor.launch.before": (
        "service/worker_pool.py",
        "a lease is on disk, its worker was not asked for",
    ),
    "supervisor.launch.after": ("service/worker_pool.py", "a worker was asked for and not noted"),
    "supervisor.born.before": ("service/worker_pool.py", "a worker runs, its pid is not noted"),
    "supervisor.died.before": ("service/worker_pool.py", "a worker has ended, nothing is noted"),
    "supervisor.settle.before": (
        "service/worker_pool.py",
        "the recorder is about to hear of a worker's end",
    ),
    "supervisor.settle.after": (
        "service/worker_pool.py",
        "the recorder has heard of a worker's end",
    ),
    "supervisor.fork_server.before": (
        "service/worker_spawner.py",
        "the fork server is about to be started",
    ),
    "supervisor.fork_server.after": (
        "service/worker_spawner.py",
        "the fork server runs, its line is not listened to",
    ),
    "supervisor.fork_server.lost": (
        "service/worker_spawner.py",
        "the fork server has ended, its workers are not reported",
    ),
    "supervisor.leftovers.before": (
        "service/orphaned_terminals.py",
        "terminals of an ended rollout are about to be ended",
    ),
    "supervisor.drain.before": ("service/supervisor.py", "workers are about to be told to leave"),
    "supervisor.drain.late": ("service/supervisor.py", "workers did not leave in time"),
    "supervisor.finish.before": (
        "service/daemon_process.py",
        "workers have left, the fork server lives",
    ),
    "supervisor.stop.before": ("service/daemon_process.py", "the recorder is about to stop"),
    "supervisor.stop.after": (
        "service/daemon_process.py",
        "the database is closed, engines are about to end",
    ),
    "supervisor.engine.started": (
        "engines/engine_process.py",
        "an engine runs, its pid is not recorded",
    ),
    "supervisor.engine.recorded": ("engines/engine_process.py", "an engine runs and is recorded"),
    "supervisor.engine.ready": ("service/engine_restarts.py", "an engine answers, nobody knows"),
    "fork_server.fork.before": ("service/fork_server.py", "a worker is about to be forked"),
    "fork_server.fork.after": (
        "service/fork_server.py",
        "a worker runs, the supervisor was not told",
    ),
    "fork_server.child.before": (
        "service/fork_server.py",
        "a forked worker is not yet tied to the fork server",
    ),
    "fork_server.reap.after": (
        "service/fork_server.py",
        "a worker was reaped, the supervisor was not told",
    ),
    "worker.hello.before": ("agent/rollout_worker.py", "a worker is about to say hello"),
    "worker.hello.after": ("agent/rollout_worker.py", "a worker knows where its rollout stands"),
    "worker.open.before": (
        "agent/rollout_worker.py",
        "the engine answers, the world is about to be made or found",
    ),
    "worker.open.after": ("agent/rollout_worker.py", "the world is there"),
    "worker.moved.before": ("agent/rollout_worker.py", "the rollout is over, nobody knows"),
    "worker.moved.after": ("agent/rollout_worker.py", "the end is on disk, terminals live"),
    "worker.close.before": ("agent/rollout_worker.py", "the environment is about to be let go"),
    "worker.close.after": (
        "agent/rollout_worker.py",
        "the environment is let go, the engine is not",
    ),
    "worker.head.before": ("agent/rollout_setup.py", "the head is rendered and not stored"),
    "worker.head.after": ("agent/rollout_setup.py", "the head is stored"),
    "worker.resume.before": (
        "agent/rollout_setup.py",
        "the steps of the context are about to be read",
    ),
    "worker.resume.after": (
        "agent/rollout_setup.py",
        "the steps were read, the context is not rebuilt",
    ),
    "worker.sample.before": ("agent/agent_loop.py", "the engine is about to be asked"),
    "worker.sample.asked": (
        "agent/agent_loop.py",
        "the engine has answered, the sample is not stored",
    ),
    "worker.sample.after": ("agent/agent_loop.py", "the sample is stored, no call has begun"),
    "worker.intent.before": ("agent/call_execution.py", "a call is about to be announced"),
    "worker.intent.after": ("agent/call_execution.py", "a call is announced and has not run"),
    "worker.call.after": ("agent/call_execution.py", "a call has run, its result is not stored"),
    "worker.result.after": ("agent/call_execution.py", "a result is stored"),
    "worker.lookahead.before": (
        "agent/purification.py",
        "a correction of a failed call is about to be sampled",
    ),
    "worker.lookahead.asked": (
        "agent/purification.py",
        "the engine has answered, the correction is not stored",
    ),
    "worker.lookahead.after": (
        "agent/purification.py",
        "a correction is stored, none of its calls has begun",
    ),
    "worker.restore.before": (
        "agent/purification.py",
        "the world is about to be as it was before what failed, where it has a state",
    ),
    "worker.purified.before": (
        "agent/purification.py",
        "a correction came right, the purified attempt is not stored",
    ),
    "worker.purified.after": (
        "agent/purification.py",
        "the purified attempt counts, it has no results yet",
    ),
    "worker.takeover.between": (
        "agent/call_execution.py",
        "a call is taken over from a correction, its result is not",
    ),
    "worker.recover.before": (
        "agent/call_execution.py",
        "a call that was under way is about to be found again",
    ),
    "worker.recover.after": (
        "agent/call_execution.py",
        "the honest result of a lost call is not stored",
    ),
    "worker.snapshot.before": (
        "agent/agent_loop.py",
        "a step is about to be closed by its snapshot",
    ),
    "worker.snapshot.after": ("agent/agent_loop.py", "the snapshot is taken"),
    "worker.observation.before": ("agent/agent_loop.py", "the observation is about to be stored"),
    "worker.observation.after": (
        "agent/agent_loop.py",
        "the observation is stored, what people said is not in the context",
    ),
    "worker.summary.before": ("agent/context_compression.py", "a summary is about to be sampled"),
    "worker.summary.after": (
        "agent/context_compression.py",
        "a try at a summary is stored, its fork is not",
    ),
    "worker.try.after": (
        "agent/agent_loop.py",
        "an answer that was no action is stored, the next one is not sampled",
    ),
    "worker.verifier.before": ("agent/flow/verifier.py", "a verifier is about to be asked"),
    "worker.verifier.after": (
        "agent/flow/verifier.py",
        "what a verifier said is stored, its step is open",
    ),
    "worker.fork.before": ("agent/context_compression.py", "a fork is about to be stored"),
    "worker.fork.after": (
        "agent/context_compression.py",
        "a fork is stored, the context is the old one",
    ),
    "worker.beat.before": ("agent/recorder_client.py", "a heartbeat is about to be sent"),
    "worker.pause.before": ("agent/recorder_client.py", "a pause has reached a safe point"),
    "worker.send.after": ("agent/recorder_client.py", "a message is sent, its answer is awaited"),
    "worker.workspace.copied": (
        "hosts/rollout_workspace.py",
        "a workspace is copied and not in its place",
    ),
    "worker.workspace.placed": (
        "hosts/rollout_workspace.py",
        "a workspace is in its place, its note is not written",
    ),
    "worker.branch.noted": (
        "hosts/rollout_workspace.py",
        "a branch's workspace is brought back and noted, and not in its place",
    ),
    "worker.terminal.token": (
        "hosts/terminals/terminal_start.py",
        "a terminal's mark is written, no process runs",
    ),
    "worker.terminal.pane": (
        "hosts/terminals/terminal_start.py",
        "a terminal's session runs, its shell was not met",
    ),
    "worker.terminal.started": (
        "hosts/terminals/terminal_start.py",
        "a terminal runs and is not recorded",
    ),
    "worker.command.noted": (
        "hosts/terminals/local_terminal.py",
        "a command is noted and not handed to the shell",
    ),
    "worker.command.handed": (
        "hosts/terminals/local_terminal.py",
        "a command is handed to the shell, its start was not seen",
    ),
    "worker.snapshot.written": (
        "hosts/snapshots/shadow_repository.py",
        "a snapshot is written, the head names the one before",
    ),
    "worker.snapshot.named": (
        "hosts/snapshots/shadow_repository.py",
        "the head names a snapshot that memory does not know",
    ),
    "worker.shadow.made": (
        "hosts/snapshots/shadow_repository.py",
        "the shadow repository is made beside its place",
    ),
    "worker.world.before": (
        "environments/workstation/workstation_environment.py",
        "the first snapshot is taken, the world is not noted as made",
    ),
    "worker.state.before": (
        "environments/workstation/workstation_state.py",
        "what the workstation remembers is written beside its place",
    ),
    "worker.file.before": (
        "environments/workstation/file_actions.py",
        "an edited file is written beside its place",
    ),
    "worker.evaluation.before": (
        "environments/workstation/evaluator.py",
        "the evaluator is about to run",
    ),
    "worker.evaluation.after": (
        "environments/workstation/evaluator.py",
        "there is a score, nobody knows",
    ),
    "worker.request.before": (
        "engines/engine_http.py",
        "a request is about to be sent to an engine",
    ),
}
"""Name → (module below `houston_daemon`, what is about to happen or has just happened)."""
