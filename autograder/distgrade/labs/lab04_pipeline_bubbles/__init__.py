"""Rooms of lab04-pipeline-bubbles."""
