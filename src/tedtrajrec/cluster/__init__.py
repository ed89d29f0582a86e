"""The stages of the command line on a Ray cluster."""
