"""The store as everybody sees it: its schema, the journal's hash chain, and read-only queries.

Only `houston_daemon.recorder` writes; nothing in this package opens the database for writing,
except `migrate`, which the recorder calls before its sockets open.
"""
