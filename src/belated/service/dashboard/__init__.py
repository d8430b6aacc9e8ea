"""The page that shows a running loop, and the data behind it."""
