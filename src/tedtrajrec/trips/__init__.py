"""Trips: their table, files, cleaning and simulation."""
