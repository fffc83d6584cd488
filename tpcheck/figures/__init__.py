"""What audits, kill matrices and calibrations come to, as data."""
