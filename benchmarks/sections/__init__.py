"""The sections of the suite: each measures one thing and writes its own part of the report."""
