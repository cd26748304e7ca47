"""The command line: one file per verb, each of them only parses, calls and shows.

Modules here import torch and pyarrow inside their functions, so that `rankformer --help` answers at once.
"""
