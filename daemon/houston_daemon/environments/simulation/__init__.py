"""Worlds that a simulator runs in a child process: ScienceWorld and TextWorld."""
