"""Mistakes a user can mend; the command line prints them as a single line and exits with 2."""

from __future__ import annotations

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


class UserError(Exception):
    """What is wrong, where, and what to do about it, in one line."""


class UserNote(UserWarning):
    """What a user should know of what goes on all the same, in one line."""


def of_the_place(error: OSError) -> str | None:
    """What to say of an error that the place of a file makes, as a full disk does; None of one that code makes."""
    file = error.filename or "a file"
    if error.errno in _FULL:
        return f"no space left for {file}; make room and run it again"
    return f"{file}: {error.strerror}; allow it or name another place" if error.errno in _REFUSED else None
