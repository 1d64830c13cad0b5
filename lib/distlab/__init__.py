"""Helper library of the course: one function per rank, on a simulator or on real processes."""
