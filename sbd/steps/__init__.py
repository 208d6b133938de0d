"""The steps of an experiment, one module per verb: what the experiment file says, handed to the library.

Each module imports what its step runs and nothing else; the workflow repeats a step when any of that code changes.
"""
