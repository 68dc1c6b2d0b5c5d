"""What is kept: records, runs, and what was refused or failed."""
