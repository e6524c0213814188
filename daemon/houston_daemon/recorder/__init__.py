"""The recorder: the only writer of the database; ingest, guidance, control, notices.

`service.Recorder` is what the supervisor holds. Inside, one thread owns the connection and the
sockets: `loop` collects messages, `batch` stores them in one transaction, answers leave after its
commit. Everything else here is a small part of that, or (`search`, `verify`) reads beside it.
"""
