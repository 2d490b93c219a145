"""What the machine lacks, as a refusal: an error of the operating system that says nothing about the pin."""

from __future__ import annotations

import errno

from pinproof.reasons import Reason, Refusal

_BY_NUMBER = {
    errno.ENOSPC: Reason.DISK_SHORT,
    errno.EDQUOT: Reason.DISK_SHORT,
    errno.EROFS: Reason.FOLDER_UNWRITABLE,
    errno.EACCES: Reason.FOLDER_UNWRITABLE,
    errno.EPERM: Reason.FOLDER_UNWRITABLE,
    errno.EMFILE: Reason.DESCRIPTORS_SHORT,
    errno.ENFILE: Reason.DESCRIPTORS_SHORT,
    errno.ENOMEM: Reason.MEMORY_SHORT,
    errno.EIO: Reason.DISK_FAILED,
    errno.ESTALE: Reason.DISK_FAILED,
}


def refusal_of(error: OSError | MemoryError) -> Refusal | None:
    """The refusal that an error amounts to, which names the file if the error does; None for another kind of error."""
    if isinstance(error, MemoryError):
        return Refusal(Reason.MEMORY_SHORT, "this process got no more memory")
    reason = _BY_NUMBER.get(error.errno)
    if reason is Reason.FOLDER_UNWRITABLE and error.filename is None:  # a right that is not about a file
        return None
    return reason and Refusal(reason, error.strerror or str(error), file=error.filename)
