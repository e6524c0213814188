"""Reports to an OpenTelemetry collector what rollouts do, as it is stored: spans of rollouts,
steps, samples and calls, by the conventions for generative AI.

It reads the journal and writes nothing into it. The package `service` has the figures for
Prometheus.
"""
