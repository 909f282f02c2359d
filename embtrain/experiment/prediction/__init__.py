"""Predictions of trained models: one file for each task."""
