"""Full screens of the console and the lists on them."""
