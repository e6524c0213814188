"""Everything that runs on the node: supervisor, recorder, workers, engines, environments, hosts."""
