"""Prepared data for training and evaluation."""
