"""The tables and figures of the paper, each a small module that can be run by itself."""
