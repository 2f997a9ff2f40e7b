"""The fault matrix as data: families of faults, known limits, and the cells that run them."""
