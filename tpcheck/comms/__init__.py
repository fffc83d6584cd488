"""What ranks say to one another: the trace of collectives, and where in the candidate they are."""
