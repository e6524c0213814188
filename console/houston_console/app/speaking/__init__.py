"""Guidance: writing it, keeping it until the daemon has it, and what became of it."""
