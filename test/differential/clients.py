"""HTTP clients of Python: `http.client`, or one around the parser `h11`.

Reads lines `METHOD URL`, asks each through the proxy at the given port, and prints each answer as a line of JSON.
"""
import http.client
import json
import socket
import sys


class StandardClient:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, method, url):
        self.connection.request(method, url)
        response = self.connection.getresponse()
        return response.status, response.read()

    def close(self):
        self.connection.close()


class H11Client:
    def __init__(self, port):
        self.port = port
        self.socket = None

    def ask(self, method, url):
        import h11

        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port))
            self.connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target=url, headers=[("Host", "a.example")])
        self.socket.sendall(self.connection.send(request) + self.connection.send(h11.EndOfMessage()))
        status, body = 0, b""
        while True:
            event = self.connection.next_event()
            if event is h11.NEED_DATA:
                self.connection.receive_data(self.socket.recv(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionError(repr(event))
        if self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE:
            self.connection.start_next_cycle()
        else:
            self.close()
        return status, body

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


CLIENTS = {"http.client": StandardClient, "h11": H11Client}

client = CLIENTS[sys.argv[1]](int(sys.argv[2]))
for line in sys.stdin:
    method, url = line.split()
    try:
        status, body = client.ask(method, url)
        print(json.dumps({"status": status, "body": body.decode("latin-1")}), flush=True)
    except Exception as error:
        client.close()
        print(json.dumps({"status": 0, "body": "", "error": repr(error)}), flush=True)
