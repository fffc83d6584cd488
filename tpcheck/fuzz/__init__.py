"""`tpcheck fuzz`: the hunt over many checks, for as long as one likes."""
