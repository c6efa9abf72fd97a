"""Comparing what was read with the checksum of the original release."""

from __future__ import annotations

import hashlib


def check_md5(content: bytes, expected: str, source: str) -> None:
    """Raise a `ValueError` that names `source` and both sums unless the MD5 of `content` is the expected one.

    MD5 because it is what the releases publish: it finds damage and mistakes, it is no defence against malice.
    """
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{source} has md5 {found} ({len(content):,} bytes), but the original release has {expected}: it is "
            "truncated, changed or another file (verify=False reads a subset or a changed copy all the same)"
        )
