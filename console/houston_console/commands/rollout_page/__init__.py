"""A rollout as one HTML page: `houston rollout html` writes what this package makes.

Elements are a tree, and no string is ever markup. Style and script lie beside the modules as files
and are put into the page, whose policy names them by hash and forbids everything else.
"""
