"""A machine reached over SSH, driven by a small process of Houston there."""
