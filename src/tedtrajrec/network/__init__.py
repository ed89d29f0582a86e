"""The road network: its arrays, where it comes from, and what one can ask it."""
