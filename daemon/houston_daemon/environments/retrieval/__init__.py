"""Search for agents: providers on the web, cached answers, and a corpus of one's own."""
