"""What a policy reads: the context, its rendering and size in tokens, the ledger, and dialects."""
