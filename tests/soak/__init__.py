"""Gates that a release has to pass under load and failure: `python -m tests.soak GATE`."""
