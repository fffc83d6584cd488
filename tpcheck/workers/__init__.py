"""Processes of the driver's that work side by side, each with a session of its own."""
