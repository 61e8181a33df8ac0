"""Two implementations of one function: the input on which they differ."""
