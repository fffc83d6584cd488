"""The reference's side of a case: numbers drawn, values expected, bounds. Runs in the driver."""
