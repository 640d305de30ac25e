"""What is measured. Each scenario takes the bench and gives rows; `SCENARIOS` is their order in the table."""
