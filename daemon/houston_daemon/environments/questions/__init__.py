"""Questions with answers to compare: sets, splits, scores, and what was answered already."""
