"""ScienceWorld (Wang et al. 2022, arXiv:2203.07540): experiments in a text simulation."""
