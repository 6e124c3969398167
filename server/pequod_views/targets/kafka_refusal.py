"""Why brokers take no client: aiokafka tells of it to its log alone, so they are asked once more.

refuses            a wrong password, a certificate that nobody known has signed: a person has to mend it
does not answer    nobody listens, or one that hangs up: it may be better next
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.conn import create_conn
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)

from pequod.errors import PequodError
from pequod_views.errors import TargetAwayError, TargetRefusedError
from pequod_views.targets.kafka_address import KafkaAddress
from pequod_views.targets.kafka_waits import KafkaWaits

#: A user may not do something.
UNAUTHORISED: Final = (
    ClusterAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
#: A connection, its encryption and its user.
_LOOK_S: Final = 10.0


def may_not(address: KafkaAddress, error: KafkaError) -> TargetRefusedError:
    """Return what one of `UNAUTHORISED` says to the user of an address."""
    who = f"the user {address.user}" if address.mechanism is not None else "a client without a user"
    return TargetRefusedError(address.shown, f"{who} lacks a right ({error}); grant it, or mend the address")


async def why_not(address: KafkaAddress, settings: Mapping[str, Any], waits: KafkaWaits) -> PequodError:
    """Return what the brokers say to a client that they do not take: a refusal, if one of them refuses."""
    found: PequodError | None = None
    for broker in address.brokers:
        host, _, port = broker.rpartition(":")
        try:
            connection = await waits.within(create_conn(host.strip("[]"), int(port), **settings), _LOOK_S)
        except (KafkaError, OSError) as error:
            found = _told(address, broker, error)
            if isinstance(found, TargetRefusedError):
                return found
        else:
            connection.close()
            # It closes connections whose first question is not who they are.
            found = _hangs_up(address, broker)
    assert found is not None, "an address has a broker"
    return found


def _told(address: KafkaAddress, broker: str, error: Exception) -> PequodError:
    match error:
        case SaslAuthenticationFailed():
            reason = f"{broker} does not know this user with this password by {address.mechanism}; mend the address"
        case UnsupportedSaslMechanismError():
            reason = f"{broker} does not know users by {address.mechanism}; name another `mechanism` in the address"
        case IllegalSaslStateError():
            reason = f"{broker} asks for no user; leave out USER:PASSWORD@ in the address, or name another port"
        case ssl.SSLCertVerificationError():
            reason = (
                f"the certificate of {broker} is not to be trusted ({error.verify_message}); `ca` in the address has to"
                " name the file of those that have signed it"
            )
        case KafkaConnectionError():
            return _hangs_up(address, broker)
        case _:
            return TargetAwayError(address.shown, str(error) or type(error).__name__)
    return TargetRefusedError(address.shown, reason)


def _hangs_up(address: KafkaAddress, broker: str) -> TargetAwayError:
    wanted = [] if address.ca is not None else ["for TLS, add ?ca=FILE to the address"]
    if address.mechanism is None:
        wanted.append("for a user, write USER:PASSWORD@ before the host")
    hint = f"; if it asks {', and if '.join(wanted)}" if wanted else ""
    return TargetAwayError(address.shown, f"{broker} hangs up{hint}")
