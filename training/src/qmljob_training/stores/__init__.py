"""Where checkpoints and artifacts live: a folder or a bucket, behind one small interface."""

from .errors import Fenced, ObjectNotFound, PreconditionFailed, StoreError, StoreMisconfigured, StoreUnavailable
from .fencing import Attempted, AttemptedDocument, put_fenced
from .locations import open_store, split_location
from .protocol import Generation, RetrySettings, Store, StoredObject

__all__ = [
    "Attempted",
    "AttemptedDocument",
    "Fenced",
    "Generation",
    "ObjectNotFound",
    "PreconditionFailed",
    "RetrySettings",
    "Store",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "StoredObject",
    "open_store",
    "put_fenced",
    "split_location",
]
