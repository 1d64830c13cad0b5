"""Imported first by our commands: nbformat then loads in a fraction of its time.

nbformat imports jsonschema, which imports whatever package can check the form of an address, if one
is installed. One is (jupyter-events asks for it), and it builds a grammar at import: over two
seconds, for a format that no notebook has. Without it jsonschema leaves that check out.
"""

import sys

if "jsonschema" not in sys.modules:
    sys.modules["rfc3987_syntax"] = None
