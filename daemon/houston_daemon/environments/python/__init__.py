"""A stateless code tool: each call runs in a process of its own, and a traceback is the error."""
