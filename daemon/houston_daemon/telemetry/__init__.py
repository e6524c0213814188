"""What rollouts do, told to a collector of OpenTelemetry as it is stored: spans of rollouts, steps,
samples and calls, by the conventions for generative AI.

It reads the journal and writes nothing into it. Figures for Prometheus are the room `service`'s.
"""
