"""The preprocessors that put distgrade inside nbgrader, named in `nbgrader_config.py`.

`nbgrader generate_assignment`: release.NameStubs, release.Release. `nbgrader autograde`:
rebuild.Rebuild, rebuild.RestoreCells, then execute.Execute, verify.Verify. Other notebooks than
this course's are left to nbgrader. Nothing is imported here: making a release needs no torch.
"""
