"""Named points at which tests make a process die, hang or fail: where a crash is dangerous.

Here they do nothing. What each name means, and how a fault is ordered, is in `tests/faults`.
"""


def point(name: str) -> None:
    """Come by the point `name`. Tests put another function in the place of this one."""
