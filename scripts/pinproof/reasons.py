"""The closed list of reasons: why something did not count, and whose failure that is.

Only a confirmed failure of the `target` may lead to REVERT; every other owner can only lead to
UNDECIDED. A message about one case is written where it happens; owner and remedy stand here, once.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class Owner(StrEnum):
    """Whose failure a reason is."""

    TARGET = "target"  # the pinned engine
    INSTRUMENT = "instrument"  # us
    ENVIRONMENT = "environment"  # the machine, a neighbour, the lease
    INPUT = "input"  # case, pin block, weights, baseline


class Reason(Enum):
    """One reason; the value is (code, owner, remedy)."""

    # case and pin
    CASE_INVALID = ("case-invalid", Owner.INPUT, "correct the key in that file")
    PIN_INVALID = ("pin-invalid", Owner.INPUT, "correct the parity-pin block in the pin file")
    CITATION_GONE = ("citation-gone", Owner.INPUT, "correct the citation of the baseline")
    DISCHARGE_FALLEN = (
        "discharge-fallen",
        Owner.INPUT,
        "measure what the argument excused, or mend what broke it: the witness that disagrees is named",
    )
    DISCHARGE_UNKNOWN = (
        "discharge-unknown",
        Owner.INPUT,
        "make the record that the argument rests on: the missing witness is named",
    )

    # records
    RECORD_MISSING = ("record-missing", Owner.INSTRUMENT, "run the stage that makes this record")
    RECORD_DAMAGED = ("record-damaged", Owner.INSTRUMENT, "delete the record; the next call makes it anew")
    RECORD_FOREIGN = ("record-foreign", Owner.INSTRUMENT, "delete the record; it belongs to another version or stage")

    ARCHIVE_HOSTILE = ("archive-hostile", Owner.INPUT, "do not use it: an archive of pinproof holds nothing like that")
    ARCHIVE_DAMAGED = ("archive-damaged", Owner.INPUT, "get the archive again from who made it")
    ARCHIVE_DIFFERS = (
        "archive-differs",
        Owner.INPUT,
        "trust neither the verdict nor the record that is named: one does not follow from the other",
    )

    ATTESTATION_INVALID = ("attestation-invalid", Owner.INPUT, "trust nothing that it states")
    REPORT_FAILED = ("report-failed", Owner.INSTRUMENT, "read the log: it holds what snakemake --report said")

    REHEARSAL_FAILED = (
        "rehearsal-failed",
        Owner.INPUT,
        "read what the rehearsed stages said: a lease would end the same way",
    )

    # source and build
    SOURCE_SHALLOW = ("source-shallow", Owner.INPUT, "git fetch --unshallow --tags")
    SOURCE_UNTAGGED = ("source-untagged", Owner.INPUT, "git fetch --tags")
    SOURCE_FOREIGN_TAG = (
        "source-foreign-tag",
        Owner.INPUT,
        "fetch the version tags (git fetch --tags) or name the tag",
    )
    SOURCE_DIRTY = ("source-dirty", Owner.INPUT, "git stash or commit the changes")
    SOURCE_MISSING = ("source-missing", Owner.INPUT, "stage the named repository")
    SOURCE_INVALID = (
        "source-invalid",
        Owner.INPUT,
        "give a whole git clone, git bundle or released source archive of the declared commit",
    )
    BUILD_REQUIREMENT = ("build-requirement", Owner.INPUT, "add the named build requirement to the lock")
    BUILD_KILLED = ("build-killed", Owner.ENVIRONMENT, "lower MAX_JOBS: a compiler was killed, most likely for memory")
    BUILD_FAILED = ("build-failed", Owner.TARGET, "read the first error of the build log")
    BUILD_NETWORK = ("build-network", Owner.ENVIRONMENT, "stage the repository that the build wanted to clone")
    BUILD_TORCH = (
        "build-torch",
        Owner.INPUT,
        "lock a build of torch for the declared target into the build environment, or correct the target",
    )
    BUILD_ARCHITECTURE = (
        "build-architecture",
        Owner.TARGET,
        "declare an architecture that this version builds for, or take a newer toolkit",
    )
    BUILD_TIME = ("build-time", Owner.INPUT, "ask for a longer lease: the build was timed on this device")
    BUILD_INCOMPLETE = ("build-incomplete", Owner.TARGET, "read in the build log why the named file was not made")
    BUILD_OTHER_BINARIES = (
        "build-other-binaries",
        Owner.INPUT,
        "name the wheel that the binaries are to be taken from",
    )
    TOOLCHAIN_MISMATCH = ("toolchain-mismatch", Owner.ENVIRONMENT, "use the toolkit that torch was built with")
    LIBRARY_MISSING = ("library-missing", Owner.ENVIRONMENT, "give the machine the named library or right")
    COMPILER_MISSING = (
        "compiler-missing",
        Owner.ENVIRONMENT,
        "install a C++ compiler (g++): vLLM compiles its graphs on a CPU",
    )
    DISK_SHORT = ("disk-short", Owner.ENVIRONMENT, "free the named amount of disk")
    MEMORY_SHORT = ("memory-short", Owner.ENVIRONMENT, "free memory, or lower what the case reserves")
    DESCRIPTORS_SHORT = ("descriptors-short", Owner.ENVIRONMENT, "raise the limit of open files (ulimit -n)")
    FOLDER_UNWRITABLE = ("folder-unwritable", Owner.ENVIRONMENT, "give a folder that this account may write")
    DISK_FAILED = ("disk-failed", Owner.ENVIRONMENT, "see what the kernel says of that file system (dmesg)")

    # wheels and environments
    WHEEL_UNAVAILABLE = ("wheel-unavailable", Owner.ENVIRONMENT, "reach the package index, or give the wheel as a file")
    WHEEL_TRUNCATED = ("wheel-truncated", Owner.INPUT, "fetch the wheel again")
    WHEEL_RECORD = ("wheel-record", Owner.INPUT, "rebuild the wheel: its RECORD disagrees with its files")
    WHEEL_NAME = ("wheel-name", Owner.INPUT, "rename the wheel to what its metadata says")
    WHEEL_DIGEST = ("wheel-digest", Owner.INPUT, "correct sha256 in the case, or fetch the declared wheel")
    WHEEL_PLATFORM = ("wheel-platform", Owner.ENVIRONMENT, "use a wheel whose tag this machine supports")
    ENV_FAILED = ("env-failed", Owner.ENVIRONMENT, "read the installer's log")
    ENV_BROKEN = ("env-broken", Owner.INSTRUMENT, "delete the env folder; the next call makes it anew")
    MODULE_MISSING = (
        "module-missing",
        Owner.INSTRUMENT,
        "add the distribution that brings it to the arm's lock, or to its `provided`",
    )
    PROVIDED_OTHER = (
        "provided-other",
        Owner.ENVIRONMENT,
        "run on a worker that has what the case's `provided` names, or lock it and install it",
    )
    TORCH_UNAVAILABLE = (
        "torch-unavailable",
        Owner.ENVIRONMENT,
        "name a find-links folder or an index that has the torch build",
    )

    # identity
    IDENTITY_MISMATCH = (
        "identity-mismatch",
        Owner.TARGET,
        "take the correction as a change of its own, or correct the build mode",
    )
    REFERENCE_IDENTITY = (
        "reference-identity",
        Owner.INPUT,
        "correct the pin block or the engine of the arm compared with",
    )
    PIN_DISAGREES = ("pin-disagrees", Owner.INPUT, "take the correction as its own change, or correct the build mode")
    IDENTITY_UNKNOWN = ("identity-unknown", Owner.INSTRUMENT, "read the log of the version reader")
    IDENTITY_AMBIGUOUS = ("identity-ambiguous", Owner.INPUT, "leave one distribution that owns the import name")
    EXTENSION_FAILED = ("extension-failed", Owner.TARGET, "read the error of the op that was executed")
    IMPORT_FOREIGN = ("import-foreign", Owner.ENVIRONMENT, "remove the path that shadows the installed package")

    # checkpoints and corpus
    CHECKPOINT_MISSING = ("checkpoint-missing", Owner.INPUT, "fetch the named files")
    CHECKPOINT_DAMAGED = ("checkpoint-damaged", Owner.INPUT, "fetch the named file again")
    CHECKPOINT_POINTER = ("checkpoint-pointer", Owner.INPUT, "git lfs pull")
    CHECKPOINT_MISMATCH = ("checkpoint-mismatch", Owner.INPUT, "fetch the declared revision")
    CORPUS_MISMATCH = ("corpus-mismatch", Owner.INPUT, "delete the corpus; the next call makes it anew")

    # device and lease
    DEVICE_OTHER = ("device-other", Owner.ENVIRONMENT, "run on the device that the case names")
    DEVICE_BUSY = ("device-busy", Owner.ENVIRONMENT, "wait until the named processes have ended")
    DEVICE_PRIVILEGE = (
        "device-privilege",
        Owner.ENVIRONMENT,
        "run where clocks may be locked, or let the case go without",
    )
    DEVICE_BROKEN = ("device-broken", Owner.ENVIRONMENT, "mend the driver of the machine")
    DEVICE_THROTTLED = ("device-throttled", Owner.ENVIRONMENT, "let the device cool, or lower its clocks")
    CLOCKS_MOVED = (
        "clocks-moved",
        Owner.ENVIRONMENT,
        "let the device reach a steady temperature, or lock its clocks: legs at different clocks are not compared",
    )
    CLOCKS_UNSEEN = (
        "clocks-unseen",
        Owner.INSTRUMENT,
        "give the cell more prompts, so that a leg has the samples that the case asks for",
    )
    DEVICE_REBOOTED = ("device-rebooted", Owner.ENVIRONMENT, "run again: legs of two boots are not mixed")
    SURVIVORS = ("survivors", Owner.ENVIRONMENT, "end the named processes of an earlier run")
    LEASE_HELD = ("lease-held", Owner.ENVIRONMENT, "wait for the named holder")
    LEASE_LOST = ("lease-lost", Owner.ENVIRONMENT, "run again under a new lease")
    LEASE_REFUSED = (
        "lease-refused",
        Owner.ENVIRONMENT,
        "take the lease as the case's `lease` key says, and start the workflow inside it",
    )
    LOCK_PLACE = ("lock-place", Owner.ENVIRONMENT, "give a folder on a local disk that every account may write")

    # servers
    SERVER_EXITED = ("server-exited", Owner.TARGET, "read the first error of the server log")
    SERVER_KILLED = ("server-killed", Owner.ENVIRONMENT, "find who ended the server from outside")
    SERVER_MEMORY = ("server-memory", Owner.ENVIRONMENT, "free memory on the device, or lower what the row reserves")
    SERVER_STALLED = ("server-stalled", Owner.TARGET, "read the last line of the server log")
    SERVER_TIMEOUT = ("server-timeout", Owner.INSTRUMENT, "raise serve.start_timeout_s in the case")
    REFERENCE_FAILED = (
        "reference-failed",
        Owner.INPUT,
        "mend the engine or the serve keys of the arm compared with: it speaks neither for the pin nor against it",
    )
    SERVER_FOREIGN = ("server-foreign", Owner.ENVIRONMENT, "free the port: another process answered on it")
    SERVER_SURVIVED = ("server-survived", Owner.INSTRUMENT, "end the named processes by their pid")
    CONFIG_NOT_APPLIED = (
        "config-not-applied",
        Owner.TARGET,
        "compare the engine's resolved configuration with the row",
    )
    ENGINE_STARTS = (
        "engine-starts",
        Owner.ENVIRONMENT,
        "see what started the engine more than once: a server is one engine start",
    )

    # legs
    REQUESTS_FAILED = ("requests-failed", Owner.TARGET, "read the error texts of the leg")
    REQUESTS_MISSING = ("requests-missing", Owner.INSTRUMENT, "read the client log of the leg")
    OUTPUT_SHORT = ("output-short", Owner.TARGET, "see which requests got fewer tokens than asked")
    INPUT_DIFFERS = ("input-differs", Owner.TARGET, "compare the tokenizers of the arms with the corpus")
    FIRST_CHUNK = ("first-chunk", Owner.INSTRUMENT, "see what the first chunk of a stream holds: TTFT ends there")
    PREFIX_HITS = (
        "prefix-hits",
        Owner.INSTRUMENT,
        "use prompts of their own for every leg, or turn prefix caching off",
    )
    PREEMPTED = (
        "preempted",
        Owner.INPUT,
        "give both servers more KV cache, or the cell fewer requests: what was computed twice is no speed",
    )
    COMPILED_IN_WINDOW = ("compiled-in-window", Owner.ENVIRONMENT, "warm the named kernels up before the leg")
    METRICS_DISAGREE = ("metrics-disagree", Owner.INSTRUMENT, "compare the client's counts with the server's counters")
    METRIC_MISSING = ("metric-missing", Owner.INSTRUMENT, "read the client's raw output")
    CLIENT_FAILED = ("client-failed", Owner.INSTRUMENT, "read the client log")
    CLIENT_STALLED = (
        "client-stalled",
        Owner.INSTRUMENT,
        "read the client log, or raise leg_timeout_s: the server was not seen to stand still",
    )
    CLIENT_CHANGED = ("client-changed", Owner.INSTRUMENT, "build the client's arguments for this version of the client")

    # start-up and warm-up
    STARTS_DIFFER = (
        "starts-differ",
        Owner.INPUT,
        "take from the arm's serve keys what keeps its caches off, or ask for cold starts of both arms",
    )
    CACHE_STATE = (
        "cache-state",
        Owner.ENVIRONMENT,
        "run where the page cache can be set, or ask for the other state in the row's caches",
    )
    WARMUP_FAILED = ("warmup-failed", Owner.TARGET, "read the exception and the server logs of the failed lives")
    WARMUP_UNCONFIRMED = (
        "warmup-unconfirmed",
        Owner.ENVIRONMENT,
        "call the workflow again: a failure counts when it recurs and no life went well",
    )
    WARMUP_DID_NOT_RUN = (
        "warmup-did-not-run",
        Owner.INPUT,
        "name callables that this version has and that run on this device",
    )
    WARMUP_UNKNOWN = ("warmup-unknown", Owner.INSTRUMENT, "see what the span files and the server logs say")

    # decision
    NOISE = ("noise", Owner.ENVIRONMENT, "quieten the device, or plan more reps")
    INFEASIBLE = ("infeasible", Owner.INPUT, "more prompts a leg, or a wider tolerance")
    SERIES_EFFECT = ("series-effect", Owner.ENVIRONMENT, "look at what differs between the two series")
    INVALID_REPS = ("invalid-reps", Owner.ENVIRONMENT, "remove the cause of the invalid reps")
    REGRESSION = ("regression", Owner.TARGET, "take the pin back, or mend the engine")
    UNCONFIRMED_RED = ("unconfirmed-red", Owner.ENVIRONMENT, "run a second series")
    NOT_MEASURED = ("not-measured", Owner.INSTRUMENT, "run the row")

    def __init__(self, code: str, owner: Owner, remedy: str) -> None:
        self.code = code
        self.owner = owner
        self.remedy = remedy

    @classmethod
    def from_code(cls, code: str) -> Reason:
        """Return the reason with this code; KeyError when the list has none."""
        return _BY_CODE[code]


_BY_CODE = {reason.code: reason for reason in Reason}


class Refusal(Exception):
    """A stage that will not go on, with what a person needs to mend it.

    `file` and `key` name the place (a path as the user typed it; a dotted key or a line).
    """

    def __init__(self, reason: Reason, message: str, *, file: object = None, key: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.file = None if file is None else str(file)
        self.key = key

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.file, self.key) if part)
        head = f"{place}: {self.message}" if place else self.message
        return f"{head}\n  remedy: {self.reason.remedy}  [{self.reason.code}, {self.reason.owner}]"

    def as_record(self) -> dict:
        """The refusal as JSON values, for a record of a failed attempt."""
        return {
            "reason": self.reason.code,
            "owner": str(self.reason.owner),
            "message": self.message,
            "file": self.file,
            "key": self.key,
            "remedy": self.reason.remedy,
        }
