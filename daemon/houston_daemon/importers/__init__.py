"""Tasks of other benchmarks as task folders of ours, with what could and could not be mapped."""
