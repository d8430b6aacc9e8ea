"""The work behind ``belated ledger``: import, export, verify, replay, snapshot, backup, retain."""
