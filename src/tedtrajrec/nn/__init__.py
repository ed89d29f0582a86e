"""Layers of the learned methods: each module is one equation or a few of them."""
