"""Certifies a user's sink: finds the guarantee that it keeps, with the evidence."""
