"""Search for agents: providers on the web, cached answers, and a user's own corpus."""
