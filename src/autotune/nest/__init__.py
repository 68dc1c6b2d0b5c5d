"""The symbolic loop nest of a sketch, and the tape it is flattened into."""
