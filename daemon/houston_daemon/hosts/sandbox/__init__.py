"""How a process is shut in and run to its end; nothing here knows terminals or snapshots."""
