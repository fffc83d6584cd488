"""Why a case fails: run again, located, named. Runs in the driver."""
