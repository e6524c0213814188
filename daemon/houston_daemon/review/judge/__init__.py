"""The judge: a model that says of whole steps whether a policy should learn them."""
