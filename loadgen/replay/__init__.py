"""Sends the lines of a user's own file as the events of a load."""
