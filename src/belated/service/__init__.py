"""The service: bandits over HTTP, every decision durable before it is answered."""
