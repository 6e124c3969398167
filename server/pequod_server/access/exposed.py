"""Warnings at the start of what others may read or write and should not."""

from __future__ import annotations

import logging
from typing import Final

from pequod.addresses import is_local
from pequod.machine import fault_of_secret
from pequod_server.config import ServerConfig

log = logging.getLogger("pequod.server")

#: Settings whose files hold secrets, or say who may do what.
_SECRETS: Final = ("access_file", "tls_key", "backing_token", "cluster_key", "cluster_password")


def warn_of_exposed(config: ServerConfig) -> None:
    """Log what is open to others: the port, the metrics, and files of the settings."""
    if not (config.access_file or config.tls_client_ca or is_local(config.listen)):
        log.warning("everybody who reaches %s may do everything; give --access-file", config.listen)
    if config.metrics and not is_local(config.metrics):
        log.warning(
            "everybody who reaches %s may read the metrics, which name tables and joins; listen on 127.0.0.1, or see "
            "that only those who collect metrics reach it",
            config.metrics,
        )
    for name in _SECRETS:
        path = getattr(config, name)
        if path is not None and (fault := fault_of_secret(path)):
            log.warning("%s: %s", name, fault)
