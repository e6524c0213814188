"""Questions with answers to compare: sets, splits, scores, and search_qa over a local corpus."""
