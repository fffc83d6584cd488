"""What driver and ranks hand one another, and what both do alike. Runs on both."""
