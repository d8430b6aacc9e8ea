"""The stores that come with belated: in memory, SQLite, PostgreSQL."""
