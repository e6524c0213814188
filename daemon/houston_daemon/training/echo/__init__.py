"""A policy and its critic, trained together on the same batches (ECHO)."""
