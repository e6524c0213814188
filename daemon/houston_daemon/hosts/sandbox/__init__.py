"""How a process is enclosed and run to its end; nothing here knows terminals or snapshots."""
