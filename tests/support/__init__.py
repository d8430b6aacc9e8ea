"""What several test files use: servers, stores and clocks that fail on purpose."""
