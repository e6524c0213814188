"""The recorder: the only writer of the database; ingest, guidance, control, notices.

The supervisor holds `recorder_thread.Recorder`. Inside it, one thread owns the connection and the
sockets: `recorder_loop` collects messages, `group_commit` stores them in one transaction, and
answers are sent after its commit. `handlers` defines what a message does, `event_projections` what
an event changes in the tables, and `disk` what is kept on disk. `search_indexer` and
`houston_daemon.maintenance` read alongside it.
"""
