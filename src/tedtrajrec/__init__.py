"""Sparse, irregular GPS in; dense trips on the road network out."""

__version__ = "0.1.0"
