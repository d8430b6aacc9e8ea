"""The service: decisions and rewards over HTTP, and the dashboard."""
