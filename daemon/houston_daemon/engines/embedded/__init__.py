"""The embedded engine: a small transformers server with vLLM's /v1/completions, for no GPU at all.

A process of its own (`python -m houston_daemon.engines.embedded`); nothing of it is imported by
the daemon or its workers, which never load torch. It answers token ids with token ids,
log-probabilities and cached-token counts, decodes under a JSON schema, keeps recent prefixes and
loads adapters. Requests with the same adapter share a pass, and each gets one token of it; still,
vLLM is the engine for many rollouts.
"""
