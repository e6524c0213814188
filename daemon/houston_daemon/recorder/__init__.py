"""The recorder: the only writer of the database; ingest, guidance, control, notices.

`recorder_thread.Recorder` is what the supervisor holds. Inside, one thread owns the connection and
the sockets: `recorder_loop` collects messages, `group_commit` stores them in one transaction,
answers leave after its commit. What a message does is in `handlers`, what an event changes in the
tables in `event_projections`, what lies on the disk in `disk`. `search_indexer` and
`houston_daemon.maintenance` read beside it.
"""
