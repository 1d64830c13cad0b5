"""Graders of the course: references, diagnoses, and their place inside nbgrader."""
