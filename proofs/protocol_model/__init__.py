"""A model of the protocols in plain Python, and a search through all that kills and zombies can do."""
