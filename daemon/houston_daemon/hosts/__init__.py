"""Machines on which agents act: terminals, sandboxed processes, snapshots."""
