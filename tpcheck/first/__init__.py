"""A first check of a user's own module or plan, read from it and written down (`tpcheck init`)."""
