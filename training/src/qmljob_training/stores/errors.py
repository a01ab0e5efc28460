"""What a store can answer instead of data.

Every message is one line: what is wrong, where, and what to do about it. The classes tell a program what to do next:

    StoreError
    ├── ObjectNotFound       there is no such object; often no error at all
    ├── PreconditionFailed   somebody else wrote first: read again and decide anew
    ├── StoreUnavailable     a full disk, a service that is away: worth another attempt
    ├── StoreMisconfigured   the same start would fail again: a person must change something
    └── Fenced               a later attempt owns this object: this process must stop writing
"""


class StoreError(Exception):
    """A store could not do what it was asked."""


class ObjectNotFound(StoreError):
    """No object has this name."""


class PreconditionFailed(StoreError):
    """The object's generation is not the one that the writer expected; nothing was written."""


class StoreUnavailable(StoreError):
    """The store could not serve the request now, retries included."""


class StoreMisconfigured(StoreError):
    """The location can't work as given: bad name, no permission, no such bucket, no credentials."""


class Fenced(StoreError):
    """The object belongs to a later attempt of the job."""
