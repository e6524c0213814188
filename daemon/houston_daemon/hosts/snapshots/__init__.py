"""The shadow repository of a workspace: what was in it after each step."""
