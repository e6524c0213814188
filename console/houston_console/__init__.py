"""Textual app for annotators, and the headless commands that only read."""
