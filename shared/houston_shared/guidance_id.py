"""Ids of guidance: made once by whoever says it, so that sending it again says it only once."""

import os


def new_id() -> str:
    """`g-` and 12 hexadecimal digits."""
    return f"g-{os.urandom(6).hex()}"
