"""nbgrader's settings for this course. The folder of this file is the course root.

Read when `nbgrader` or JupyterLab (for formgrader) starts here; every setting has its reason.
"""

import os
import sys
from contextlib import suppress
from functools import partial

from distgrade.nbgrader.gradebook import ensure_assignment
from distgrade.nbgrader.release import STUB

ROOT = os.path.dirname(os.path.abspath(__file__))
STATE = os.path.join(ROOT, ".distgrade")  # ignored by git

# nbgrader calls `alembic` by name to make a gradebook. Without an activated environment it is not
# found, and half a gradebook is left behind. So the environment that runs this comes first.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")

# Students hand work in through the exchange where a course uses one. It must exist, or the
# assignment list in JupyterLab answers with an error.
EXCHANGE = os.path.join(STATE, "exchange")
with suppress(OSError):  # a read-only checkout can still be looked at
    os.makedirs(EXCHANGE, exist_ok=True)

c = get_config()  # noqa: F821 (nbgrader's loader defines it)

# --- the course ------------------------------------------------------------------------------
c.CourseDirectory.root = ROOT  # commands may start in any folder
c.CourseDirectory.course_id = "distlab"  # the exchange sorts by course
c.CourseDirectory.db_url = "sqlite:///" + os.path.join(ROOT, "gradebook.db")
c.Exchange.root = EXCHANGE
c.Exchange.path_includes_course = False  # one course: `lab03-...`, not `distlab/lab03-...`

NBGRADER = "nbgrader.preprocessors."
OURS = "distgrade.nbgrader."

# --- nbgrader generate_assignment: source/ -> release/ ---------------------------------------
# release/ is committed while the gradebook is not: without force nbgrader would skip what exists,
# and the gradebook would never learn of the assignment.
c.GenerateAssignment.force = True
c.ClearSolutions.code_stub = {"python": STUB}  # a stub says what is missing (see NameStubs)
c.GenerateAssignment.preprocessors = [
    NBGRADER + "LockCells",
    NBGRADER + "ClearSolutions",
    OURS + "release.NameStubs",  # before the checksums: they must know the final text
    NBGRADER + "ClearOutput",
    NBGRADER + "CheckCellMetadata",
    NBGRADER + "ComputeChecksums",
    NBGRADER + "SaveCells",  # into the gradebook, hidden regions included
    NBGRADER + "ClearHiddenTests",
    NBGRADER + "ClearMarkScheme",
    NBGRADER + "ComputeChecksums",
    NBGRADER + "CheckCellMetadata",
    OURS + "release.Release",  # last: canonical form, content hash
]  # left out of nbgrader's list: header/footer and generated tests, which this course does not use

# --- nbgrader generate_solution: source/ -> solution/, for students after the deadline -----------
c.GenerateSolution.force = True
c.GenerateSolution.preprocessors = [
    NBGRADER + "ClearHiddenTests",
    NBGRADER + "ClearMarkScheme",
    OURS + "release.Solution",
]  # left out of nbgrader's list: Execute, since students run it themselves

# --- nbgrader autograde: submitted/ -> autograded/ -------------------------------------------
# A fresh clone has no gradebook: it is made when the first submission is graded.
c.Autograde.pre_convert_hook = partial(ensure_assignment, config=c)
c.Autograde.sanitize_preprocessors = [
    OURS + "rebuild.Rebuild",  # first: one copied cell would stop the whole class below
    NBGRADER + "ClearOutput",
    NBGRADER + "DeduplicateIds",
    NBGRADER + "OverwriteKernelspec",
    OURS + "rebuild.RestoreCells",
    OURS + "rebuild.CheckCells",
]
c.Autograde.autograde_preprocessors = [
    OURS + "execute.Execute",  # harnesses in place of test cells
    OURS + "verify.Verify",  # right after it: verdicts, before anything reads the outputs
    NBGRADER + "LimitOutput",
    NBGRADER + "SaveAutoGrades",
    NBGRADER + "AssignLatePenalties",
    OURS + "rebuild.CheckCells",
]
c.NotebookExporter.optimistic_validation = True  # of the form once at the end, not after each step
c.Execute.timeout = 30  # seconds for one cell; the labs' own take less than 2
c.Execute.exercise_timeout = 90.0  # seconds for all cases of an exercise; they take about 1
c.Execute.shutdown_kernel = "immediate"  # a graceful end costs 0.8 s per notebook and gains nothing

# --- nbgrader generate_feedback, formgrader: pages ---------------------------------------------
# nbconvert puts a written answer into the page as it is, scripts included; this renders it instead.
c.HTMLExporter.filters = {"markdown2html": OURS + "pages.markdown"}
