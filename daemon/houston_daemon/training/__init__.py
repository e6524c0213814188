"""From the ledger to a better policy: rows, exporters, trainers, policies, experiments."""
