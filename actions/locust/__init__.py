"""Locust: many users at once against a server that generates text."""
