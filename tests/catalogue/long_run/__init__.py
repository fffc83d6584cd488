"""A small language model in many steps of training: how tight its bounds are after each, and faults
that begin at one of them."""
