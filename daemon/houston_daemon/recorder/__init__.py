"""The recorder: the only writer of the database; ingest, guidance, control, notices.

`service.Recorder` is what the supervisor holds. Inside, one thread owns the connection and the
sockets: `loop` collects messages, `batch` stores them in one transaction, answers leave after its
commit. What messages mean is in `steps` (workers) and `people`, what events mean for tables in
`derived`, what lies on the disk in `disk`. `searching` and `upkeep` read beside it.
"""
