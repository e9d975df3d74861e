"""The lock of searches and changes; it lives in tandem, for the item store needs it too."""

from tandem.shared_lock import SharedLock as SharedLock
