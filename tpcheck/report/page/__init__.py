"""One self-contained HTML file of any JSON report: nothing of it is fetched, and nothing in it runs
but its own script, which only filters and copies."""
