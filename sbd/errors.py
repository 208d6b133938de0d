"""The one exception for mistakes a user can mend; the command line prints it as a single line and exits with 2."""


class UserError(Exception):
    """What is wrong, where, and what to do about it, in one line."""
