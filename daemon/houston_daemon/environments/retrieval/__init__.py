"""Search for agents: providers on the web, answers that are kept, and a corpus of one's own."""
