"""What a policy reads: the context, how it is rendered and counted in tokens, the ledger, and
dialects.
"""
