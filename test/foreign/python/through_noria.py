"""A pytest plugin: every connection of urllib3 goes through noria's SOCKS5 listener, and the suite does not notice."""

import socket

import socks
import urllib3.util.connection as connection

PORT = 7792
direct = connection.create_connection


def create_connection(address, timeout=connection._DEFAULT_TIMEOUT, source_address=None, socket_options=None):
    host, port = address
    host = host.strip("[]")
    try:
        connection.allowed_gai_family()
        socket.getaddrinfo(host, port)
    except (UnicodeError, socket.gaierror):
        return direct(address, timeout, source_address, socket_options)  # fails as without a proxy
    try:
        return socks.create_connection(
            (host, port),
            None if timeout is connection._DEFAULT_TIMEOUT else timeout,
            source_address,
            socks.SOCKS5,
            "127.0.0.1",
            PORT,
            True,
            socket_options=socket_options,
        )
    except socks.ProxyError as error:
        raise error.socket_err or error


connection.create_connection = create_connection
