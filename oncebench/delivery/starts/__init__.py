"""What a start remembers of input and output, and the losses that an operator has accepted."""
