"""Many cases: collected, drawn, shrunk, saved. Runs in the driver."""
