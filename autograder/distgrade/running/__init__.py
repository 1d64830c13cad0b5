"""Running a student's notebook: confined kernels that start warm, watched while they run."""
