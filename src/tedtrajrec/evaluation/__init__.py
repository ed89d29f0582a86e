"""How good recovered trips are: metrics per trip, their means, and comparisons of methods."""
