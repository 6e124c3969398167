"""The asyncio gRPC server: a thin shell around one engine.

app.py      composition: engine, servicer, listening, signals
service.py  the calls: decode, ask the engine, encode
execute.py  the hot loop: one batch of commands
errors.py   exceptions to status codes
"""

from pequod_server.app import PequodServer, run
from pequod_server.config import ServerConfig

__all__ = ["PequodServer", "ServerConfig", "run"]
