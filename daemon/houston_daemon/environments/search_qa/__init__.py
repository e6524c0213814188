"""Questions answered from a local corpus: ECHO's DeepSearch (Xi et al. 2025, AgentGym-RL)."""
