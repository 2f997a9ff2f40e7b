"""Delivery guarantees as a library: protocols, journal, batch and failpoints. It imports no other part of the
project."""
