"""TextWorld (Côté et al. 2018, arXiv:1806.11532): text games that its own generator makes."""
