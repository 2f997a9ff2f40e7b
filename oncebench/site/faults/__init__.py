"""The parts of the page about runs with faults: the matrix, recovery, and timelines."""
