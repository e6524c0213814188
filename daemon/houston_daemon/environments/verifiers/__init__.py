"""Environments of the package verifiers as worlds, in processes and interpreters of their own."""
