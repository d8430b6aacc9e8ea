"""What can be done with a ledger from the command line: move it, check it, rebuild it, keep it."""
