"""Two hosts for real: network namespaces of one machine, each with an address of its own."""
