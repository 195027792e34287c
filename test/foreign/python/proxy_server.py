"""Takes the place of `tests/proxy_server.py` in python-socks and its relatives: noria listens already on the ports they use."""

import os
from dataclasses import dataclass
from typing import Any

import trustme


@dataclass
class ProxyConfig:
    proxy_type: str
    host: str
    port: int
    username: "str | None" = None
    password: "str | None" = None
    ssl_context: Any = None


class ProxyServer:
    def __init__(self, config):
        pass

    def start(self):
        pass

    def shutdown(self):
        pass

    terminate = shutdown


def trust_noria(original):
    def configure_trust(self, context):
        original(self, context)
        context.load_verify_locations(os.environ["NORIA_CERTIFICATE"])

    return configure_trust


trustme.CA.configure_trust = trust_noria(trustme.CA.configure_trust)
