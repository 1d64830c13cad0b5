"""A teacher's class: collect what was handed in, grade it, report on it, give marks out."""
