"""Copies in a store outside the machine: the journal, snapshots, adapters, and back again."""
