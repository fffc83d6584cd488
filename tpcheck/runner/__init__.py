"""One case, whole: posed, run on an engine, judged. Runs in the driver."""
