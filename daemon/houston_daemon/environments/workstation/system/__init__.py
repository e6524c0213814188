"""Thinking, sleeping, finishing."""
