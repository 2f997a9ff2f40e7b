"""Runs of half an hour and more: what grows, and what an operator may do meanwhile."""
