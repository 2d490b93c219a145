"""What the machine lacks is told as a refusal of the environment, and never as a failure of the pin."""

import errno
import os

import pytest

from pinproof import shortages
from pinproof.reasons import Owner, Reason


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, Reason.DISK_SHORT),
        (errno.EDQUOT, Reason.DISK_SHORT),
        (errno.EROFS, Reason.FOLDER_UNWRITABLE),
        (errno.EACCES, Reason.FOLDER_UNWRITABLE),
        (errno.EMFILE, Reason.DESCRIPTORS_SHORT),
        (errno.ENOMEM, Reason.MEMORY_SHORT),
        (errno.EIO, Reason.DISK_FAILED),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else None,
)
def test_an_error_of_the_system_is_a_refusal_with_the_file(number: int, reason: Reason) -> None:
    found = shortages.refusal_of(OSError(number, os.strerror(number), "results/x.json"))
    assert (found.reason, found.reason.owner, found.file) == (reason, Owner.ENVIRONMENT, "results/x.json")
    assert found.message == os.strerror(number)


def test_an_allocation_that_fails_is_a_lack_of_memory() -> None:
    assert shortages.refusal_of(MemoryError()).reason is Reason.MEMORY_SHORT


def test_any_other_error_is_none_of_it() -> None:
    assert shortages.refusal_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) is None
    assert shortages.refusal_of(OSError("a word")) is None
    assert shortages.refusal_of(PermissionError(errno.EPERM, "Operation not permitted")) is None  # of a process
