"""Delivery guarantees as a library; it imports no other part of the project."""
