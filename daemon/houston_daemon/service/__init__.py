"""The parts of the supervisor: the lock, the log, readiness, workers, engines, start and stop."""
