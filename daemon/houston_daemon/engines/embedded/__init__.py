"""The embedded engine: a small transformers server with vLLM's /v1/completions; it needs no GPU.

A separate process (`python -m houston_daemon.engines.embedded`); the daemon and its workers import
nothing of it, so they never load torch. It answers token ids with token ids, log-probabilities and
cached-token counts, decodes under a JSON schema, keeps recent prefixes and loads adapters. Requests
with the same adapter share a forward pass, which gives each one token; for many rollouts, vLLM is
still the right engine.
"""
