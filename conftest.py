"""What holds for every test of the course."""

import signal

# A shell that starts `make test` in the background has Ctrl-C ignored, and every process below it
# inherits that: the tests that interrupt a program would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
