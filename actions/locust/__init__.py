"""Run load tests with Locust: many concurrent users of a server that generates text."""
