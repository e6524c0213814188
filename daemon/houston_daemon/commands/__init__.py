"""The commands that act on the node: one module each, with `arguments` and `run`."""
