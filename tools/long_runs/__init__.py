"""Long runs and clean installs: growth, repeated kills, and an operator's changes."""
