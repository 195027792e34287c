"""HTTP servers of Python that print each whole request as a line of JSON: `http.server`, or one around the parser `h11`.

The first line of the output is the port. Each response has the header `X-Seen`: method, target and a hash of the body.
"""
import hashlib
import http.server
import json
import socketserver
import sys
import threading

PRINTING = threading.Lock()


def report(method, target, fields, body, trailers):
    fields = [f"{name.lower()}: {value}" for name, value in fields]
    trailers = [f"{name.lower()}: {value}" for name, value in trailers]
    seen = {"method": method, "target": target, "fields": fields, "body": body.decode("latin-1"), "trailers": trailers}
    with PRINTING:
        print(json.dumps(seen), flush=True)
    return f"{method} {target} {hashlib.sha1(body).hexdigest()}"


class StandardHandler(http.server.BaseHTTPRequestHandler):
    """`http.server` leaves the body to its user: this reads it as RFC 9112 describes, and nothing else."""

    protocol_version = "HTTP/1.1"

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self):
        body, trailers = self.read_body()
        seen = report(self.command, self.path, self.headers.raw_items(), body, trailers)
        self.send_response(200)
        self.send_header("X-Seen", seen)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.read_exactly(int(self.headers.get("Content-Length", 0))), []
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.read_exactly(size + 2)[:-2]
        trailers = []
        while (line := self.rfile.readline()) != b"\r\n":
            name, value = line.decode("latin-1").split(":", 1)
            trailers.append((name, value.strip(" \t\r\n")))
        return body, trailers

    def read_exactly(self, count):
        data = self.rfile.read(count)
        if len(data) < count:
            raise EOFError("the request ends in the middle")
        return data

    def log_message(self, *arguments):
        pass


class H11Handler(socketserver.BaseRequestHandler):
    def handle(self):
        import h11

        def text(pairs):
            return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]

        connection = h11.Connection(h11.SERVER)
        request, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(self.request.recv(65536))
            elif isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                method, target = request.method.decode(), request.target.decode("latin-1")
                seen = report(method, target, text(request.headers), body, text(event.headers))
                response = h11.Response(status_code=200, headers=[("X-Seen", seen), ("Content-Length", "0")])
                self.request.sendall(connection.send(response) + connection.send(h11.EndOfMessage()))
                connection.start_next_cycle()
            else:
                return


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # a connection that ends in the middle of a request


HANDLERS = {"http.server": StandardHandler, "h11": H11Handler}

with Server(("127.0.0.1", 0), HANDLERS[sys.argv[1]]) as server:
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until the test ends
