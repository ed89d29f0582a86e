"""How packed datasets get small: a range coder, and models of trips, positions and fixes."""
