"""What holds for every test of the course."""

import contextlib
import resource
import signal

MOST_BYTES = 14 * 2**30  # a thousand ranks are threads, with 8 MiB of stack each set aside

# A shell that starts `make test` in the background has Ctrl-C ignored, and every process below it
# inherits that: the tests that interrupt a program would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without end, a test would take the whole machine's memory, and the system end its worker without a
# word; like this it fails with a MemoryError that says where.
with contextlib.suppress(ValueError, OSError):  # a smaller limit is set already
    resource.setrlimit(
        resource.RLIMIT_DATA, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1])
    )
