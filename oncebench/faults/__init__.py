"""The nemesis: what is done to a run from outside, at the moment at which it stands still at a failpoint."""
