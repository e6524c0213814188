"""Policies: weights that were trained, where they came from, and the way into engines.

`register` is what a trainer calls at its end. Nothing here imports torch but `merging` and `gguf`.
"""

from houston_daemon.training.policies.registering import register as register
