"""Worlds that a simulator runs in a child process: what `scienceworld` and `textworld` share."""
