"""Rows on their way into a topic: sent, counted, and named if the topic refuses them."""
